"""Names by which the framework itself refers to filters."""

ROOM = "NodeResourcesFit"
"""The plugin that asks whether there is room."""
BARRIER = "reserve"
"""What keeps pods from nodes that are held for starving jobs; the action's, not a plugin's."""
