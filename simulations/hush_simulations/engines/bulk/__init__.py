"""The bulk engine: what devices and an aggregator would have counted, drawn from the same law without any of them."""
