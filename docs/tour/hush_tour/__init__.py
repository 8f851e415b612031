"""The tour: a chapter for each document that hush was created from, with every idea of it at work.

A chapter is a marimo notebook, which is plain Python: prose and calls. What it calls is in the modules here, typed and
tested, and in the rest of hush.
"""
