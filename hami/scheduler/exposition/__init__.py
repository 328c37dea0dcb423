"""Metrics of the cluster, made when they are scraped.

``compat`` speaks HAMi's names, so that its dashboards keep working.
The service's own counters are ``hami.scheduler.metrics``. Nothing here changes the state.
"""
