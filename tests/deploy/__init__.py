"""Tests of `deploy/`: the Helm chart, the manifests and the CustomResourceDefinitions."""
