-- How long a record is to live (ms): a day after its last use, and until the clock has passed the last number. After the clock was set
-- back, numbers are ahead of it: if the key ended sooner, the next number would come from the clock alone, and be smaller than an
-- earlier number. (See `keep_anew` for the ten million more.)
-- @include lib/clock: number

local function sequence_ttl(last)
  return 96400000 + math.min(4e12, math.max(0, math.ceil((last - number) / 1000)))
end
