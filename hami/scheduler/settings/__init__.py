"""The service's configuration: its model, where it comes from, and HAMi's own flags."""
