"""The client: Locust drives plans, sockets are stamped, records and histograms come out."""
