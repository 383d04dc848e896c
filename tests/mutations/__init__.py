"""Deliberate mistakes, one rule each, that the project's own tests must notice.

`catalogue` lists them: a file, a piece of its text, the text with the mistake, and the tests that
notice. `plugin` makes one mistake while the package is imported, without touching a file. `__main__`
runs the whole catalogue, or some of it, and prints which test noticed which mistake.
"""
