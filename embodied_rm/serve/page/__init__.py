"""The pages of the service, for a browser: films judged as they are dropped, and the runs under way."""
