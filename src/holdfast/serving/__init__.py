"""What every HTTP server of Holdfast needs, the local API server as well as the metrics port:
listening, limits, health. May import `api`.
"""
