-- show_slots: notes how many free slots an instance has, and until when that holds.
-- ARGV: origin, instance, length, body.
call('HSET', P .. 'slots', ARGV[2], pack({ now() + ARGV[3], ARGV[4] }))
hint('slots', ARGV[2])
publish(ARGV[1])
return 1
