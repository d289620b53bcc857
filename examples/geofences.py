"""Geofences on Spark, drawn as a map: `python examples/geofences.py fences.png`.

Vehicles drive about a town, and send where they are. Fences are circles, boxes and polygons, some of them for
lorries or for speed alone. Spark finds which fences each position is in; the picture shows the fences, and in
red the positions that are in one.
"""

import random
import sys

import matplotlib as mpl
from matplotlib.patches import Ellipse, Polygon, Rectangle

import rangecast as rc
from rangecast import spark as rs

mpl.use("Agg")
from matplotlib import pyplot as plt

SCHEMA = rc.Schema(rc.Point("spot"), rc.Category("kind"), rc.Float("speed"))
FENCES = [
    (1, "spot WITHIN 1500 m OF (13.37, 52.52)"),
    (2, "spot IN BOX (13.42, 52.50, 13.48, 52.53) and kind = 'lorry'"),
    (3, "spot IN POLYGON 'POLYGON((13.30 52.47, 13.40 52.46, 13.35 52.50, 13.30 52.47))' and speed > 30"),
]


def positions(n: int) -> list[tuple[int, str, str, float]]:
    """Where vehicles are: id, place as text, kind, speed."""
    draw = random.Random(3)
    return [
        (
            k,
            f"POINT({draw.uniform(13.28, 13.5):.5f} {draw.uniform(52.45, 52.55):.5f})",
            draw.choice(["lorry", "van"]),
            round(draw.uniform(0, 60), 1),
        )
        for k in range(n)
    ]


def draw_map(rows: list, found: set[int], path: str) -> None:
    """Fences as they are, positions in grey, and in red where a fence holds them."""
    figure, axes = plt.subplots(figsize=(7, 5))
    axes.add_patch(Ellipse((13.37, 52.52), 2 * 0.0222, 2 * 0.0135, alpha=0.25))  # 1,500 m in degrees, here
    axes.add_patch(Rectangle((13.42, 52.50), 0.06, 0.03, alpha=0.25, color="tab:green"))
    axes.add_patch(Polygon([(13.30, 52.47), (13.40, 52.46), (13.35, 52.50)], alpha=0.25, color="tab:orange"))
    for inside, colour in ((False, "lightgrey"), (True, "tab:red")):
        spots = [row.spot[6:-1].split() for row in rows if (row.id in found) == inside]
        axes.plot([float(x) for x, _ in spots], [float(y) for _, y in spots], ".", color=colour, ms=4)
    axes.set(xlabel="longitude", ylabel="latitude", title="positions in a fence that concerns them")
    axes.set_aspect(1.64)  # a degree of latitude is that much longer here
    figure.savefig(path, dpi=120, bbox_inches="tight")


def main(path: str) -> None:
    spark = rs.session()
    vehicles = spark.createDataFrame(positions(2_000), "id long, spot string, kind string, speed double")
    rs.ingest(spark.createDataFrame(FENCES, "id long, condition string"), SCHEMA, "fences")
    inside = rs.match(vehicles, "fences", event_id="id").collect()
    for fence, condition in FENCES:
        print(f"{sum(row.subscription_id == fence for row in inside):4} in fence {fence}: {condition}")
    draw_map(vehicles.collect(), {row.event_id for row in inside}, path)
    print("map:", path)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "fences.png")
