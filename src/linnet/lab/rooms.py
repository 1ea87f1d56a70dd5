"""The rooms of the laboratory, in the order of the page."""

from linnet.lab.edge import Edge
from linnet.lab.landscape import Landscape
from linnet.lab.network import Network
from linnet.lab.room import Room

ROOMS: tuple[type[Room], ...] = (Network, Edge, Landscape)
