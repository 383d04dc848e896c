"""Making reservations from the command line.

wishes      what was asked for, checked flag by flag
sources     the pod template and the owners of a Deployment, a Job and their like
making      the Reservations
"""
