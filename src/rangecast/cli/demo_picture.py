"""What the demo shows of its day: a table of the busiest symbols, and a picture of one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rangecast.cli.demo_market import OPENING, Market

_ROWS = 8
HEADER = ("symbol", "trades", "opened", "closed", "change", "alerts", "fired", "notifications")


def busiest(market: Market, events: npt.NDArray[np.int64], alerts: npt.NDArray[np.int64]) -> list[list[str]]:
    """Rows for the symbols whose alerts fired most; `events` and `alerts` are the numbers of each match."""
    sent = np.bincount(market.of[events], minlength=len(market.symbols))
    trades = np.bincount(market.of, minlength=len(market.symbols))
    watched = np.bincount(market.watches, minlength=len(market.symbols))
    fired = np.bincount(market.watches[np.unique(alerts)], minlength=len(market.symbols))
    price = market.trades["price"].to_numpy()
    rows = []
    for symbol in np.argsort(-sent, kind="stable")[:_ROWS].tolist():
        own = np.flatnonzero(market.of == symbol)
        opened = float(market.opening[symbol])
        closed = float(price[own[-1]]) if len(own) else opened
        counts = (trades[symbol], watched[symbol], fired[symbol], sent[symbol])
        n_trades, n_alerts, n_fired, n_sent = (f"{n:,}" for n in counts)
        move = f"{closed / opened - 1:+.1%}"
        rows.append([
            str(market.symbols[symbol]), n_trades, f"{opened:.2f}", f"{closed:.2f}", move,
            n_alerts, n_fired, n_sent,
        ])  # fmt: skip
    return rows


def draw_day(
    market: Market, events: npt.NDArray[np.int64], alerts: npt.NDArray[np.int64], path: Path
) -> bool:
    """The day of the symbol with the most notifications: price, alerts that fired, levels that wait.

    False where Matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
    except ImportError:
        return False
    mpl.use("Agg")
    from matplotlib import dates
    from matplotlib import pyplot as plt

    sent = np.bincount(market.of[events], minlength=len(market.symbols))
    symbol = int(np.argmax(sent))
    own = np.flatnonzero(market.of == symbol)
    at = market.trades["at"].to_numpy()[own]
    price = market.trades["price"].to_numpy()[own]
    mine = market.of[events] == symbol
    per_trade = np.bincount(np.searchsorted(own, events[mine]), minlength=len(own))
    hit = np.flatnonzero(per_trade)
    levels = market.levels[(market.watches == symbol) & ~np.isnan(market.levels)]
    done = np.zeros(len(market.watches), bool)
    done[alerts] = True
    fired = market.levels[(market.watches == symbol) & done & ~np.isnan(market.levels)]

    reach = max(float(np.ptp(price)) * 0.35, 0.01 * float(price[0]))
    low, high = float(price.min()) - reach, float(price.max()) + reach
    drawing, (left, right) = plt.subplots(
        1, 2, figsize=(11, 5.2), width_ratios=(4, 1), sharey=True, layout="constrained"
    )
    left.plot(at, price, color="#33475b", linewidth=0.9, zorder=2)
    shown = left.scatter(
        at[hit], price[hit], s=14 + 9 * np.sqrt(per_trade[hit]), c=per_trade[hit], cmap="autumn_r",
        edgecolors="#7a2b00", linewidths=0.4, zorder=3,
    )  # fmt: skip
    left.axhline(float(market.opening[symbol]), color="#33475b", linewidth=0.7, linestyle=":")
    left.set(xlabel="time (UTC)", ylabel="price", ylim=(low, high))
    left.xaxis.set_major_formatter(dates.DateFormatter("%H:%M"))  # type: ignore[no-untyped-call]
    left.grid(True, alpha=0.25)
    drawing.colorbar(shown, ax=left, pad=0.01, aspect=40).ax.set_title("alerts\nper trade", fontsize=8)
    edges = np.linspace(low, high, 70)
    right.hist(levels, bins=edges.tolist(), orientation="horizontal", color="#c9d3dc", label="set")
    right.hist(fired, bins=edges.tolist(), orientation="horizontal", color="#e8590c", label="fired")
    right.set(xlabel="alerts by level")
    right.grid(True, axis="x", alpha=0.25)
    # above the plot: inside, some bar would always reach it
    right.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, fontsize=8, frameon=False)
    name, day = market.symbols[symbol], np.datetime_as_string(OPENING, "D")
    drawing.suptitle(
        f"{name}, {day}: {len(own):,} trades, {np.count_nonzero(market.watches == symbol):,} alerts, "
        f"{int(sent[symbol]):,} notifications",
        fontsize=13,
    )
    drawing.savefig(path, dpi=130)
    plt.close(drawing)
    return True


def example(
    market: Market, events: npt.NDArray[np.int64], alerts: npt.NDArray[np.int64]
) -> tuple[int, dict[str, Any]]:
    """One match to look into: an alert and the trade that it fired at, as people would type it."""
    crossing = np.flatnonzero(~np.isnan(market.levels[alerts])) if len(alerts) else np.empty(0, np.int64)
    at = int(crossing[0]) if len(crossing) else 0
    row = market.trades.slice(int(events[at]), 1).to_pylist()[0]
    alert = int(market.bounds["id"][int(alerts[at])].as_py())
    wanted = {name: row[name] for name in ("symbol", "previous", "price", "change", "volume")}
    return alert, wanted | {"at": row["at"].isoformat()}
