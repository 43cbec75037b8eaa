-- roll: a number that is another one after every registration, note and forget.
return call('HGET', P .. 'counters', 'roll') or '0'
