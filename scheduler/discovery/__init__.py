"""Where the list of nodes comes from when it is neither configured nor told by the nodes themselves.

selectors.py    label selectors, checked at start-up
endpoints.py    EndpointSlices and pods → who is a node, and who only drains
reflector.py    a copy of a Kubernetes list, kept current by a watch
kubernetes.py   the two put together, written to the ledger by one replica at a time
"""
