"""Kubernetes discovery: reads the node list from EndpointSlices and pods.

selectors.py    label selectors, checked at start-up
endpoints.py    EndpointSlices and pods → which nodes there are, and which of them drain
reflector.py    a copy of a Kubernetes list, kept current by a watch
kubernetes.py   combines them; one replica at a time writes the result to the ledger
"""
