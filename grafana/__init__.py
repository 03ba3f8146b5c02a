"""What an operator looks at: dashboards and Prometheus configuration."""
