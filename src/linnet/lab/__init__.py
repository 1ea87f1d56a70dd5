"""The laboratory: rooms in which a network is moved by hand and seen at once, on a page or in a notebook."""
