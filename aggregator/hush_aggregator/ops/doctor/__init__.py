"""`hush doctor`: checks that warn an operator before something fails."""
