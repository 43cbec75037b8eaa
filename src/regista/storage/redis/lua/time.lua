-- time: what the store's clock says, in microseconds since 1970.
return digits(now())
