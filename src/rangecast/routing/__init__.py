"""Content-based routing: brokers that forward to a neighbour only what nothing forwarded covers.

A `Router` stands between its own subscribers and its neighbours. For each neighbour it keeps

    table       what came from there: an event that matches goes there
    forwarded   what was sent there, as a CoverIndex, to be asked for covers
    withheld    what was not sent there, each with the forwarded subscription that covers it

A subscription goes to a neighbour unless one that was forwarded to it covers it; when a forwarded one is
withdrawn, what it had covered is offered again, and goes first, so that no event is missed in between.
Whatever is not found by an approximate search (epsilon > 0) is forwarded: covering saves messages and
table entries, and never changes who is notified.

A `Network` is an overlay of routers in one process, a tree: it carries their messages and counts them.

Source: the use that Shen and Tirthapura (2012, sec. 1) make of covering; Carzaniga, Rutherford and Wolf's
"A routing scheme for content-based networking" (2004) is where it comes from. A withdrawn cover is
found by the pair that was recorded when it withheld another, as the searches give one cover, not all.
"""

from rangecast.routing.router import Message, Network, Router

__all__ = ["Message", "Network", "Router"]
