-- The twin of core.go: a test holds both equal in every decision and stored number, so change them together.
-- Times are microseconds, numbers are integers below 2^53 and are written with %.0f.
--
-- A user's state is "1 fullAt penaltyEnd strikes cap capAt live|records", the project's "1 fullAt born penaltyEnd
-- strikes"; the leading 1 is the layout, and a state that does not match is a missing one. A record is 31 characters:
-- 12 of the id (~ and 11 others; no ~ is anywhere else), 16 of the admission time, 3 of the calls under way.
--
-- ARGV: op, user's and project's time to full, in-flight cap, margin, longest horizon; then the op's.
local LEASE, IN_FLIGHT_RETRY, YOUNG = 10000000, 250000, 60000000
local STRIKE_BASE, STRIKE_MAX, STRIKE_MEMORY = 1000000, 300000000, 600000000
local PAUSE_MAX = 86400000000
local CAP_EPISODE, CAP_GROW = 5000000, 60000000
local PROJECT_LIFE = 86400000000
local RECORD, RESTART, RESTART_AGE = 31, '~...........', 8000000

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local max, min, floor, ceil = math.max, math.min, math.floor, math.ceil
local sub, format = string.sub, string.format
local capU, capP = tonumber(ARGV[2]), tonumber(ARGV[3])
local margin, longest = tonumber(ARGV[5]), tonumber(ARGV[6])

local function reachable(full, e, cap)
  local from = max(now, e)
  if full > from + cap + longest then return from + cap end
  return full
end

local function pauseEnd(e)
  if e > now + PAUSE_MAX then return now end
  return e
end

local function loadProject(s)
  if s then
    local f, b, e, k = string.match(s, '^1 (%d+) (%d+) (%d+) (%d+)$')
    if f then
      f, b, e = tonumber(f), tonumber(b), tonumber(e)
      local pause = pauseEnd(e)
      local full, born = reachable(f, pause, capP), min(b, now)
      return {full = full, born = born, e = pause, strikes = tonumber(k),
        dirty = full ~= f or born ~= b or pause ~= e}
    end
  end
  return {full = now + capP, born = now, e = 0, strikes = 0, dirty = true, missing = true}
end

local function saveProject(key, p)
  local t = p.full
  if p.strikes > 0 then t = max(t, p.e + STRIKE_MEMORY) end
  local life = max(t - now + margin, PROJECT_LIFE)
  redis.call('SET', key, format('1 %.0f %.0f %.0f %.0f', p.full, p.born, p.e, p.strikes),
    'PX', format('%.0f', ceil(life / 1000)))
end

local function saveUser(key, u)
  local t = u.full
  if u.strikes > 0 then t = max(t, u.e + STRIKE_MEMORY) end
  if u.cap > 0 then t = max(t, u.capAt + STRIKE_MEMORY) end
  local n = #u.recs
  if n > 0 then t = max(t, tonumber(sub(u.recs, n - 18, n - 3)) + LEASE) end
  redis.call('SET', key,
    format('1 %.0f %.0f %.0f %.0f %.0f %.0f|', u.full, u.e, u.strikes, u.cap, u.capAt, u.live) .. u.recs,
    'PX', format('%.0f', ceil((max(t - now, 0) + margin) / 1000)))
end

local function prune(u)
  local recs, i, n = u.recs, 1, #u.recs
  while n > 0 and tonumber(sub(recs, n - 18, n - 3)) > now + longest do
    u.live = u.live - tonumber(sub(recs, n - 2, n))
    n, u.dirty = n - RECORD, true
  end
  while i < n and tonumber(sub(recs, i + 12, i + 27)) + LEASE <= now do
    u.live = u.live - tonumber(sub(recs, i + 28, i + 30))
    i = i + RECORD
  end
  if i > 1 or n < #recs then u.recs = sub(recs, i, n) end
end

local function find(u, id)
  return string.find(u.recs, id, 1, true)
end

local function insert(u, id, at, n)
  local text = format('%016.0f', at)
  local recs = u.recs
  local i = #recs
  while i > 0 and sub(recs, i - 18, i - 3) > text do i = i - RECORD end
  local rec = id .. text .. format('%03.0f', n)
  if i == #recs then
    u.recs = recs .. rec
  else
    u.recs = sub(recs, 1, i) .. rec .. sub(recs, i + 1)
  end
end

local function loadUser(s, born)
  if s then
    local f, e, k, c, a, l, r = string.match(s, '^1 (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)|(.*)$')
    if f and #r % RECORD == 0 then
      f, e, a = tonumber(f), tonumber(e), tonumber(a)
      local pause = pauseEnd(e)
      local u = {full = reachable(f, pause, capU), e = pause, strikes = tonumber(k), cap = tonumber(c),
        capAt = min(a, now), live = tonumber(l), recs = r}
      u.dirty = u.full ~= f or pause ~= e or u.capAt ~= a
      prune(u)
      return u
    end
  end
  local u = {full = 0, e = 0, strikes = 0, cap = 0, capAt = 0, live = 0, recs = '', missing = true}
  if now - born < YOUNG then
    u.full, u.dirty = now + capU, true
    insert(u, RESTART, now - RESTART_AGE, 0)
  end
  return u
end

local function release(u, ids)
  for k = 1, #ids, 12 do
    local i = find(u, sub(ids, k, k + 11))
    if i then
      local n = tonumber(sub(u.recs, i + 28, i + 30))
      if n > 0 then
        u.live = u.live - n
        u.recs = sub(u.recs, 1, i + 27) .. '000' .. sub(u.recs, i + RECORD)
        u.dirty = true
      end
    end
  end
end

local function inFlightCap(u)
  local configured = tonumber(ARGV[4])
  if u.cap == 0 then return configured end
  return min(configured, u.cap + floor(max(now - u.capAt, 0) / CAP_GROW))
end

local function denial(u, p, userWait, projectWait, wait, crowded)
  if crowded and wait < IN_FLIGHT_RETRY then
    local retry = min(tonumber(sub(u.recs, 13, 28)) + LEASE - now, IN_FLIGHT_RETRY)
    if retry >= wait then return {3, retry, 0, 0, 0} end
  end
  local code = 1
  if projectWait > userWait then
    code = p.e > now and 5 or 2
  elseif u.e > now then
    code = 4
  end
  return {code, wait, 0, 0, 0}
end

local function decide(u, p)
  local id, calls, costU, costP = ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
  local horizon = tonumber(ARGV[11])
  local i = find(u, id)
  if i then
    return {0, max(tonumber(sub(u.recs, i + 12, i + 27)) - now, 0), 0, 0, 0}
  end
  local userWait = max(u.full, now) + costU - now - capU
  local full = max(p.full, now) + costP
  local projectWait = full - now - capP
  local wait = max(userWait, projectWait, 0)
  local crowded = u.live > 0 and u.live + calls > inFlightCap(u)
  if wait > horizon or crowded then
    return denial(u, p, userWait, projectWait, wait - horizon, crowded)
  end
  local at = now + wait
  local before = max(u.full, now)
  u.full, u.dirty = max(u.full, at) + costU, true
  p.full, p.dirty = full, true
  insert(u, id, at, calls)
  u.live = u.live + calls
  return {0, wait, u.full, full, u.full - before}
end

local function giveBack(full, e, cap, after, taken)
  local back = full - max(min(after - now, taken), 0)
  if e > now then back = max(back, e + cap) end
  return back
end

local function refund(u, p)
  local i = find(u, ARGV[7])
  if not i then return {0} end
  local n = tonumber(sub(u.recs, i + 28, i + 30))
  if n == 0 then return {0} end
  u.live = u.live - n
  u.recs = sub(u.recs, 1, i - 1) .. sub(u.recs, i + RECORD)
  u.full = giveBack(u.full, u.e, capU, tonumber(ARGV[8]), tonumber(ARGV[9]))
  p.full = giveBack(p.full, p.e, capP, tonumber(ARGV[10]), tonumber(ARGV[11]))
  u.dirty, p.dirty = true, true
  return {1}
end

local function strike(s, cap, stated)
  s.dirty = true
  if now < s.e then
    if now + stated <= s.e then return end
    s.e = now + stated
  else
    if now - s.e >= STRIKE_MEMORY then s.strikes = 0 end
    local pause = STRIKE_MAX
    if s.strikes < 9 then
      pause = min(STRIKE_BASE * 2 ^ s.strikes, STRIKE_MAX)
      s.strikes = s.strikes + 1
    end
    s.e = now + max(pause, stated)
  end
  s.full = max(s.full, s.e + cap)
end

local function crowd(u)
  if u.cap > 0 and now - u.capAt < CAP_EPISODE then return end
  u.cap, u.capAt, u.dirty = max(floor(inFlightCap(u) / 2), 1), now, true
end

local function hold(s, us)
  if us > 0 then s.e, s.dirty = max(s.e, now + us), true end
end

local function recallUser(u, p, born, us)
  if us <= 0 or not u.missing and born == p.born then return end
  local full = now + us
  local i = find(u, RESTART)
  if i then
    local known = tonumber(sub(u.recs, i + 12, i + 27)) + RESTART_AGE + capU
    if full <= known then return end
    u.recs = sub(u.recs, 1, i - 1) .. sub(u.recs, i + RECORD)
    full = full + max(u.full - known, 0)
    insert(u, RESTART, min(now + us - capU, now + longest) - RESTART_AGE, 0)
  else
    full = max(full, u.full)
    insert(u, RESTART, min(full - capU, now + longest) - RESTART_AGE, 0)
  end
  u.full, u.dirty = min(max(u.full, full), max(now, u.e) + capU + longest), true
end

local function recallProject(p, born, us)
  if us <= 0 or not p.missing and born == p.born then return end
  p.full, p.dirty = min(max(p.full, now + us), max(now, p.e) + capP + longest), true
end

local function penalize(u, p)
  local scope, stated = ARGV[7], tonumber(ARGV[8])
  if scope == 'project' then
    strike(p, capP, stated)
  else
    if scope == 'concurrency' then crowd(u) end
    if scope == 'user' or stated > 0 then strike(u, capU, stated) end
  end
  return {max(u.e, p.e, now) - now}
end

local function reset(s, cap)
  s.full = min(max(s.full, now + cap), now + cap + longest)
  s.e, s.strikes, s.dirty = 0, 0, true
end

-- release needs no project: KEYS are users, each with the ids that ended in ARGV from 7 on.
if ARGV[1] == 'release' then
  for k = 1, #KEYS do
    local s = redis.call('GET', KEYS[k])
    if s then
      local u = loadUser(s, 0)
      release(u, ARGV[6 + k])
      if u.dirty then saveUser(KEYS[k], u) end
    end
  end
  return {#KEYS}
end

local stored = redis.call('MGET', KEYS[1], KEYS[2])
local p = loadProject(stored[1])
local u = loadUser(stored[2], p.born)
local answer
if ARGV[1] == 'acquire' then
  hold(u, tonumber(ARGV[12]))
  hold(p, tonumber(ARGV[13]))
  recallUser(u, p, tonumber(ARGV[15]), tonumber(ARGV[16]))
  recallProject(p, tonumber(ARGV[17]), tonumber(ARGV[18]))
  release(u, ARGV[14])
  answer = decide(u, p)
  answer[6], answer[7] = now, p.born
elseif ARGV[1] == 'refund' then
  answer = refund(u, p)
elseif ARGV[1] == 'reset' then
  if ARGV[7] == 'project' then
    reset(p, capP)
    u.dirty = false -- it is nobody
  else
    reset(u, capU)
    u.cap, u.capAt = 0, 0
  end
  answer = {1}
else
  answer = penalize(u, p)
end
if p.dirty then saveProject(KEYS[1], p) end
if u.dirty then saveUser(KEYS[2], u) end
return answer
