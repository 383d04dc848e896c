"""What tests are made of: builders of objects, clusters around a scheduler, servers, strategies.

It may import the package under test and the reference scheduler, never a test.
"""
