"""Page: the face of hush, for the people whose data it is: HTML and SVG of the server, whole without a script."""

__all__: list[str] = []
