-- The twin of core.go: a test holds both equal in every decision and stored number, so change them together.
-- Times are microseconds, numbers are integers below 2^53 and are written with %.0f.
--
-- A user's state is "2 fullAt penaltyEnd strikes cap capAt live share0 share1 share2 line0 line1 line2 fair epoch|records",
-- the project's "2 fullAt born penaltyEnd strikes share0 share1 share2 line0 line1 line2 epoch users previous"; the leading 2 is the layout,
-- and a state that does not match is a missing one. A record is 31 characters: 12 of the id (~ and 11 others; no ~ is
-- anywhere else), 16 of the admission time, 3 of the calls under way.
--
-- ARGV: op, user's and project's time to full, in-flight cap, margin, longest horizon; then the op's.
local LEASE, IN_FLIGHT_RETRY, YOUNG = 10000000, 250000, 60000000
local STRIKE_BASE, STRIKE_MAX, STRIKE_MEMORY = 1000000, 300000000, 600000000
local PAUSE_MAX = 86400000000
local CAP_EPISODE, CAP_GROW = 5000000, 60000000
local PROJECT_LIFE = 86400000000
local GRACE, LINE, EPOCH, SHARE_MEMORY, FAIR_MEMORY = 5000000, 600000000, 60000000, 3000000, 60000000
local RECORD, RESTART, RESTART_AGE = 31, '~...........', 8000000
local USER = '^2 (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)|(.*)$'
local PROJECT = '^2 (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$'

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

-- used makes a number of t, 0 where it is long past.
local function used(t, memory)
  t = tonumber(t)
  if t <= now - memory then return 0 end
  return t
end

local function use(t, cost)
  if t == 0 then return now + cost end
  if t <= now then return t + cost end
  return max(t, now + cost)
end

-- future makes a number of t, 0 where it has passed.
local function future(t)
  t = tonumber(t)
  if t <= now then return 0 end
  return t
end

local function loadProject(s)
  if s then
    local f, b, e, k, s0, s1, s2, l0, l1, l2, epoch, users, previous = string.match(s, PROJECT)
    if f then
      f, b, e = tonumber(f), tonumber(b), tonumber(e)
      local pause = pauseEnd(e)
      local full, born = reachable(f, pause, capP), min(b, now)
      local p = {full = full, born = born, e = pause, strikes = tonumber(k), share = {used(s0, SHARE_MEMORY), used(s1, SHARE_MEMORY), used(s2, SHARE_MEMORY)},
        line = {future(l0), future(l1), future(l2)}, epoch = tonumber(epoch), users = tonumber(users), previous = tonumber(previous),
        dirty = full ~= f or born ~= b or pause ~= e}
      if p.dirty then p.share, p.line = {0, 0, 0}, {0, 0, 0} end
      return p
    end
  end
  return {full = now + capP, born = now, e = 0, strikes = 0, share = {0, 0, 0}, line = {0, 0, 0}, epoch = 0, users = 0, previous = 0,
    dirty = true, missing = true}
end

local function saveProject(key, p)
  local t = p.full
  if p.strikes > 0 then t = max(t, p.e + STRIKE_MEMORY) end
  local life = max(t - now + margin, PROJECT_LIFE)
  local s, l = p.share, p.line
  redis.call('SET', key, format('2 %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f', p.full, p.born, p.e, p.strikes,
    s[1], s[2], s[3], l[1], l[2], l[3], p.epoch, p.users, p.previous), 'PX', format('%.0f', ceil(life / 1000)))
end

local function saveUser(key, u)
  local t = u.full
  if u.strikes > 0 then t = max(t, u.e + STRIKE_MEMORY) end
  if u.cap > 0 then t = max(t, u.capAt + STRIKE_MEMORY) end
  local n = #u.recs
  if n > 0 then t = max(t, tonumber(sub(u.recs, n - 18, n - 3)) + LEASE) end
  local s, l = u.share, u.line
  t = max(t, l[1], l[2], l[3])
  redis.call('SET', key, format('2 %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f|', u.full, u.e,
    u.strikes, u.cap, u.capAt, u.live, s[1], s[2], s[3], l[1], l[2], l[3], u.fair, u.epoch) .. u.recs,
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
    local f, e, k, c, a, l, s0, s1, s2, l0, l1, l2, fair, epoch, r = string.match(s, USER)
    if f and #r % RECORD == 0 then
      f, e, a = tonumber(f), tonumber(e), tonumber(a)
      local pause = pauseEnd(e)
      local u = {full = reachable(f, pause, capU), e = pause, strikes = tonumber(k), cap = tonumber(c),
        capAt = min(a, now), live = tonumber(l), share = {used(s0, SHARE_MEMORY), used(s1, SHARE_MEMORY), used(s2, SHARE_MEMORY)},
        line = {future(l0), future(l1), future(l2)}, fair = used(fair, FAIR_MEMORY), epoch = tonumber(epoch), recs = r}
      u.dirty = u.full ~= f or pause ~= e or u.capAt ~= a
      prune(u)
      if u.dirty then u.share, u.line, u.fair = {0, 0, 0}, {0, 0, 0}, 0 end
      return u
    end
  end
  local u = {full = 0, e = 0, strikes = 0, cap = 0, capAt = 0, live = 0, share = {0, 0, 0}, line = {0, 0, 0}, fair = 0,
    epoch = 0, recs = '', missing = true}
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

local function seen(u, p)
  local epoch = floor(now / EPOCH)
  if u.epoch == epoch and p.epoch == epoch then return end
  if p.epoch ~= epoch then
    p.previous = p.epoch == epoch - 1 and p.users or 0
    p.epoch, p.users = epoch, 0
  end
  u.epoch, p.users = epoch, p.users + 1
  u.dirty, p.dirty = true, true
end

-- A request: see charge in core.go. counts: its ticket is one.
local function request()
  local c = {id = ARGV[7], calls = tonumber(ARGV[8]), class = tonumber(ARGV[9]) + 1, user = tonumber(ARGV[10]),
    project = tonumber(ARGV[11]), near = tonumber(ARGV[12]), far = tonumber(ARGV[13]), shareU = tonumber(ARGV[14]),
    shareP = tonumber(ARGV[15]), patience = tonumber(ARGV[16]), length = tonumber(ARGV[17]), from = tonumber(ARGV[18]),
    to = tonumber(ARGV[19])}
  c.counts = c.to > 0 and now <= c.to + GRACE
  return c
end

local function place(u, p, c, wait, fair, byProject)
  local k = c.class
  local line, from, length = u.line[k], now + max(wait, fair), c.length
  if byProject and wait > 0 and fair <= wait and not c.counts and c.patience > 0 then
    from = max(from, min(p.line[k], from + LINE))
    p.line[k], p.dirty = from + c.project, true
  end
  if c.counts then
    from = max(from, c.from)
    length = max(c.to - max(c.from, now), c.user)
  else
    from = max(from, min(line, from + LINE))
    if from - now > c.patience then return 0, 0 end
  end
  if from + length > line then
    u.line[c.class], u.dirty = from + length, true
  end
  return from, from + length
end

local function denial(u, p, c, byProject, wait, turn, fair, crowded)
  if crowded and max(wait, turn) < IN_FLIGHT_RETRY then
    local retry = min(tonumber(sub(u.recs, 13, 28)) + LEASE - now, IN_FLIGHT_RETRY)
    if retry >= max(wait, turn) then return {3, retry, 0, 0, retry, 0, 0} end
  end
  local code = 1
  if byProject and wait > 0 then
    code = p.e > now and 5 or 2
  elseif u.e > now then
    code = 4
  end
  local from, to = place(u, p, c, wait, fair, byProject)
  if to == 0 then return {code, max(wait, turn), 0, 0, wait, 0, 0} end
  return {code, from - now, 0, 0, wait, from, to}
end

-- denied is how long a bucket denies c that would have it wait.
local function denied(c, wait, share)
  return min(wait - c.near, max(share - now, wait - c.far))
end

local function decide(u, p)
  local c = request()
  local i = find(u, c.id)
  if i then
    return {0, max(tonumber(sub(u.recs, i + 12, i + 27)) - now, 0), 0, 0, 0, 0, 0}
  end
  local k, active = c.class, max(p.users, p.previous, 1)
  local userWait = max(u.full, now) + c.user - now - capU
  local full = max(p.full, now) + c.project
  local projectWait = full - now - capP
  local userDenies = denied(c, userWait, u.share[k])
  local fair = 0
  if projectWait > 0 and active > 1 then fair = max(u.fair - now, 0) end
  local projectDenies = max(denied(c, projectWait, p.share[k]), min(projectWait, fair))
  if not c.counts then
    projectDenies = max(projectDenies, min(p.line[k], p.full - floor(capP / 2)) - now)
  end
  local denies = max(userDenies, projectDenies, 0)
  local turn = min(c.counts and c.from or u.line[k], u.full - floor(capU / 2)) - now
  local crowded = u.live > 0 and u.live + c.calls > inFlightCap(u)
  if denies > 0 or turn > 0 or crowded then
    return denial(u, p, c, projectDenies > userDenies, denies, turn, fair, crowded)
  end
  local wait = max(userWait, projectWait, 0)
  local at = now + wait
  local before = max(u.full, now)
  u.full, u.dirty = max(u.full, at) + c.user, true
  p.full, p.dirty = full, true
  u.share[k] = use(u.share[k], c.shareU)
  p.share[k] = use(p.share[k], c.shareP)
  u.fair = use(u.fair, floor(c.project * active * 10 / 9))
  insert(u, c.id, at, c.calls)
  u.live = u.live + c.calls
  local from, to = 0, 0
  if c.counts and now < c.from then
    from, to = now, now + c.to - c.from
    if u.line[k] == c.to then u.line[k] = to end
  end
  return {0, wait, u.full, full, u.full - before, from, to}
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
  hold(u, tonumber(ARGV[20]))
  hold(p, tonumber(ARGV[21]))
  recallUser(u, p, tonumber(ARGV[23]), tonumber(ARGV[24]))
  recallProject(p, tonumber(ARGV[25]), tonumber(ARGV[26]))
  release(u, ARGV[22])
  seen(u, p)
  answer = decide(u, p)
  answer[8], answer[9] = now, p.born
elseif ARGV[1] == 'refund' then
  answer = refund(u, p)
else
  answer = penalize(u, p)
end
if p.dirty then saveProject(KEYS[1], p) end
if u.dirty then saveUser(KEYS[2], u) end
return answer
