"""The rooms of the laboratory, in the order of the page."""

from linnet.lab.edge import Edge
from linnet.lab.landscape import Landscape
from linnet.lab.network import Network
from linnet.lab.own import Own
from linnet.lab.phase import Phases
from linnet.lab.rich import Rich
from linnet.lab.room import Room

ROOMS: tuple[type[Room], ...] = (Network, Phases, Edge, Rich, Own, Landscape)
