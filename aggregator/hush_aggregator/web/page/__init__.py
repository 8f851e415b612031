"""The page for the people whose data it is: HTML and SVG of the server, complete without a script."""
