"""What a round does, one file per action. May import `framework` and below, never a plugin."""
