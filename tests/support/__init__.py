"""What the tests share: servers, drivers of the SDKs, notations. Imported as `support`."""
