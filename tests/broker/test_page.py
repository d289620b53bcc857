"""The page in a real browser: what a person does on it, at desk and phone width, in light and dark.

With RANGECAST_PICTURES=FOLDER the tests keep a picture of what they see there; that of docs/broker.md is

    RANGECAST_PICTURES=docs/images python -m pytest -n 0 tests/broker/test_page.py -k places
"""

import json
import os
import shutil
import threading
import time
from pathlib import Path

import pytest

from rangecast import Int, Schema
from rangecast.broker.broker import Broker, BrokerSettings
from rangecast.broker.server import serving

pytestmark = pytest.mark.integration

BROWSER = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))),
    None,
)
PICTURES = os.environ.get("RANGECAST_PICTURES")


@pytest.fixture
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright is not there")
    if BROWSER is None:
        pytest.skip("no Chromium is there (apt-get install chromium)")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield opened
        opened.close()


def picture(page, name):
    if PICTURES:
        page.screenshot(path=str(Path(PICTURES) / f"{name}.png"), full_page=True)


def until(page, expression):
    """Wait for something; by asking again, since the page's policy forbids eval."""
    deadline = time.monotonic() + 60
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, expression
        time.sleep(0.05)


def watched(page):
    """What the page complained of, and whatever it asked of other hosts."""
    complaints = []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    return complaints


def test_a_person_uses_the_page(client, url, browser):
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    complaints, hosts = watched(page), set()
    page.on("request", lambda request: hosts.add(request.url.split("/")[2]))
    page.goto(url + "/")
    until(page, "document.getElementById('space').value === 'main'")
    assert page.locator("#schema tr").count() == 3
    # a condition as it is typed: its error with the place, then its explanation
    page.fill("#samples", '{"price": 5, "symbol": "IBM"}\n{"price": 50}')
    page.fill("#condition", "price < ")
    page.wait_for_selector("#verdict mark")
    assert "expected a value" in page.inner_text("#verdict")
    complaints.clear()  # the browser notes the refused request
    page.fill("#condition", "price < 10 and symbol = 'IBM'")
    until(page, "document.getElementById('verdict').className === 'good'")
    until(page, "document.getElementById('verdict').textContent.includes('event 1 matches')")
    assert "event 2 does not match" in page.inner_text("#verdict")
    page.click("#subscribe")
    until(page, "document.getElementById('subscribed').textContent.includes('me/first')")
    # listen and publish, by the keyboard
    page.focus("#tail")
    page.keyboard.press("Enter")
    page.wait_for_selector("#messages li")
    page.fill("#events", '{"price": 5, "symbol": "IBM"}\n{"price": "x"}')
    page.focus("#publish")
    page.keyboard.press("Enter")
    # The match may come before the answer to the publisher does.
    until(page, "document.getElementById('messages').textContent.includes('first')")
    until(page, "document.getElementById('published').textContent.includes('line 2 rejected')")
    page.click("#match")
    until(page, "document.getElementById('published').textContent.includes('me/first')")
    until(page, "document.getElementById('consumers').textContent.includes('live')")
    picture(page, "desk-light")
    assert not complaints
    assert hosts == {url.removeprefix("http://")}
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone(client, url, browser, scheme):
    page = browser.new_page(viewport={"width": 375, "height": 700}, color_scheme=scheme)
    page.goto(url + "/")
    until(page, "document.getElementById('space').value === 'main'")
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    client.publish([{"price": n} for n in range(100)])
    time.sleep(2.5)
    picture(page, f"phone-{scheme}")
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(20, 24, 27)") == (scheme == "dark")
    page.close()


def test_it_waits_for_a_broker_that_starts(tmp_path, browser):
    broker, go = Broker(BrokerSettings(data=tmp_path, port=0)), threading.Event()

    def prepare():
        assert go.wait(120)
        broker.ensure_space("main", Schema(Int("price")))

    broker.open_later(prepare, lambda _: None)
    page = browser.new_page()
    with serving(broker) as url:
        page.goto(url + "/")
        until(page, "document.getElementById('state').textContent.includes('not ready: starting for')")
        go.set()
        until(page, "document.getElementById('space').value === 'main'")
        until(page, "document.getElementById('state').textContent === '0 subscriptions'")
        page.close()


def test_every_control_is_reached_by_the_keyboard_and_has_a_name(client, url, browser):
    page = browser.new_page()
    page.goto(url + "/")
    until(page, "document.getElementById('space').value === 'main'")
    wanted = page.evaluate("[...document.querySelectorAll('input,select,textarea,button')].map(e => e.id)")
    unnamed = page.evaluate(
        "[...document.querySelectorAll('input,select,textarea')].filter(e => !e.labels.length).map(e => e.id)"
    )
    assert unnamed == []
    reached = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id"))
    assert set(wanted) <= reached
    page.close()


def test_a_token_and_a_map(start, tmp_path, browser):
    from rangecast.broker.access import add_token
    from rangecast.client import Client

    token = add_token(tmp_path / "tokens.jsonl", "root", ["admin"])
    with start(tokens=tmp_path / "tokens.jsonl") as url, Client(url, token, space="places") as client:
        client.create_space({"x": {"type": "float"}, "y": {"type": "float"}})
        for k in range(10):
            client.subscribe(
                "me", f"n{k}", f"x between {k * 8} and {k * 8 + 12} and y between {k * 5} and {k * 5 + 20}"
            )
        page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="dark")
        page.goto(url + "/")
        until(page, "document.getElementById('state').textContent.includes('Bearer')")
        page.fill("#token", token)
        page.keyboard.press("Tab")
        until(page, "document.getElementById('space').options.length === 2")
        page.select_option("#space", "places")
        page.wait_for_selector("#map-card:not([hidden])")
        page.select_option("#from", "earliest")
        page.click("#tail")
        client.publish([{"x": (7 * k) % 90, "y": (11 * k) % 70} for k in range(200)])
        until(page, "document.querySelectorAll('#messages li').length > 20")
        until(page, "document.getElementById('map-text').textContent.includes('10 subscriptions of me')")
        time.sleep(1.5)
        picture(page, "desk-dark-map")
        assert token not in json.dumps(
            page.evaluate("[location.href, document.cookie, JSON.stringify(localStorage)]")
        )
        page.close()


def test_a_map_of_places(start, browser):
    """Circles, boxes and polygons of a point, and the places that match, while vehicles move."""
    from rangecast import Category, Float, Point
    from rangecast.client import Client

    schema = Schema(Point("at"), Category("line"), Float("speed"))
    with start(schema=schema) as url, Client(url) as client:
        conditions = {
            "station": "at within 900 m of (13.37, 52.525)",
            "museum": "at within 500 m of (13.40, 52.519)",
            "centre": "at in box (13.375, 52.507, 13.425, 52.526)",
            "park": "at in polygon 'POLYGON((13.335 52.51, 13.372 52.507, 13.376 52.516, 13.335 52.51))'",
            "fast": "speed > 45 and line = 'M41'",
        }
        for name, condition in conditions.items():
            client.subscribe("me", name, condition)
        for k in range(12):
            client.subscribe(f"depot-{k}", "late", f"line = 'M{41 + k % 4}' and speed < {k}")
        page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
        complaints = watched(page)
        page.goto(url + "/")
        page.wait_for_selector("#map-card:not([hidden])")
        assert "within 2 km of" in page.get_attribute("#condition", "placeholder")
        page.click("#tail")
        page.wait_for_selector("#messages li")
        page.fill("#condition", "at within 500 m of (13.4, 52.519) and speed > 30")
        page.fill("#samples", json.dumps({"at": [13.401, 52.52], "line": "M41", "speed": 33.5}))
        forms = [
            lambda x, y: [x, y],
            lambda x, y: {"lon": x, "lat": y},
            lambda x, y: f"POINT({x} {y})",
            lambda x, y: {"type": "Point", "coordinates": [x, y]},
        ]
        ended = threading.Event()

        def drive():
            k = 0
            with Client(url) as vehicles:
                while not ended.wait(0.1):
                    events = []
                    k += 1
                    for n in range(20 + 10 * (k // 10 % 3)):
                        x = round(13.33 + ((7 * n + k) % 100) / 1000, 5)
                        y = round(52.503 + ((13 * n + 3 * k * (n % 3)) % 28) / 1000, 5)
                        line, speed = f"M{41 + n % 4}", (17 * n + k) % 60
                        events.append({"at": forms[n % 4](x, y), "line": line, "speed": speed})
                    vehicles.publish(events)

        driving = threading.Thread(target=drive)
        driving.start()
        time.sleep(30 if PICTURES else 1)
        until(
            page,
            "document.getElementById('map-text').textContent.includes('4 subscriptions of me, drawn by at')",
        )
        until(page, "/last [1-9][0-9]+ events/.test(document.getElementById('map-text').textContent)")
        until(page, "document.getElementById('verdict').className === 'good'")
        painted = page.evaluate(
            "[...document.getElementById('map').getContext('2d').getImageData(0, 0, 1200, 320).data]"
            ".filter((v, k) => k % 4 === 3 && v > 0).length"
        )
        assert painted > 1_000
        picture(page, "broker-page")
        ended.set()
        driving.join()
        assert not complaints
        page.close()
