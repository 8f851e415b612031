"""Page: the face of hush, for the people whose data it is: HTML and SVG made on the server, complete without a script."""
