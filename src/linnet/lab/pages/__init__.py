"""The pages of the lab, in the order of the page."""

from linnet.lab.page import Page
from linnet.lab.pages.data import DataPage
from linnet.lab.pages.edge import EdgePage
from linnet.lab.pages.flows import FlowsPage
from linnet.lab.pages.landscape import LandscapePage
from linnet.lab.pages.network import NetworkPage
from linnet.lab.pages.phase import PhasePage
from linnet.lab.pages.rich import RichPage

PAGES: tuple[type[Page], ...] = (NetworkPage, PhasePage, EdgePage, FlowsPage, RichPage, DataPage, LandscapePage)
