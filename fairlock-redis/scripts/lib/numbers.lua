-- Numbers as another program may have written them.

-- Greater numbers were written by another program, and are not exact.
local LAST_END = 4503599627370496

-- A number that is not negative; nil for another text, and for a number too large to be exact.
local function int(value)
  local found = tonumber(value)
  return found and found >= 0 and found < LAST_END and found or nil
end

-- The score of an end as a whole number: an operator may write `inf`, and another program a fraction.
local function end_of(score)
  return math.min(math.ceil(tonumber(score)), LAST_END)
end
