"""The rooms of the laboratory, in the order of the page."""

from linnet.lab.room import Room
from linnet.lab.rooms.edge import Edge
from linnet.lab.rooms.landscape import Landscape
from linnet.lab.rooms.network import Network
from linnet.lab.rooms.own import Own
from linnet.lab.rooms.phase import Phases
from linnet.lab.rooms.rich import Rich

ROOMS: tuple[type[Room], ...] = (Network, Phases, Edge, Rich, Own, Landscape)
