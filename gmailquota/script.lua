-- The twin of core.go: a test holds both equal in every decision and stored number, so change them together.
-- Times are microseconds, numbers are integers below 2^53 and are written with %d.
--
-- A user's state is "2 fullAt live epoch|penaltyEnd strikes rate rateAt ceiling cap capAt|share0 share1 share2|line0
-- line1 line2|fair part0 part1 part2|records", the project's "2 fullAt born epoch users previous day used|penaltyEnd
-- strikes rate rateAt ceiling|share0 share1 share2|line0 line1 line2"; a group of zeros is left out. The leading 2 is the
-- layout, and a state that does not match is a missing one. A record is 31 characters: 12 of the id (~, of a restart !, and
-- 11 others; neither sign is anywhere else), 16 of the admission time, 3 of the calls under way.
--
-- ARGV: op, user's and project's time to full, in-flight cap, margin, longest horizon, units of a day; then the op's.
--
-- What Redis works at here is, in this order: making texts and numbers of each other, making tables, calls such as max()
-- (a comparison costs a third), and making the functions anew in every run. So what is rarely not 0 is in groups, which
-- are read and kept in fields only where they are there; what several requests have in common is read once; and the
-- functions that a decision needs come first, those that it rarely needs are within others. The names in capitals are
-- replaced by their values before Redis sees this, see script.go. It is one text, as Redis runs no other in the same step.
local LEASE, IN_FLIGHT_RETRY, YOUNG = 10000000, 250000, 60000000
local MINUTE, DAY, DAY_SHIFT = 60000000, 86400000000, 28800000000
local STRIKE_BASE, STRIKE_MAX, STRIKE_MEMORY = 1000000, 300000000, 10000000
local PAUSE_MAX = 86400000000
local CAP_EPISODE, CAP_GROW, CAP_MEMORY = 5000000, 60000000, 600000000
local FULL_RATE, LEAST_RATE, FIRST_CUT, NEXT_CUT, FAST, SLOW = 1000, 10, 850, 920, 150, 6
local PROJECT_LIFE = 86400000000
local GRACE, LINE, EPOCH, SHARE_MEMORY, FAIR_MEMORY = 5000000, 600000000, 60000000, 3000000, 60000000
local MAX_PART = 35184372088832
local RECORD, RESTART_AGE, RESTART_UNIT = 31, 8000000, 100000
local USER_GROUPS = '^|([^|]*)|([^|]*)|([^|]*)|([^|]*)|(.*)$'
local PROJECT_GROUPS = '^|([^|]*)|([^|]*)|([^|]*)$'
local KIND = '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$'

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local max, min, floor, ceil = math.max, math.min, math.floor, math.ceil
local sub, find, format, match = string.sub, string.find, string.format, string.match
local capU, capP, slots = ARGV[2] + 0, ARGV[3] + 0, ARGV[4] + 0
local margin, longest, dayUnits = ARGV[5] + 0, ARGV[6] + 0, ARGV[7] + 0
local thisEpoch = floor(now / EPOCH)

-- What a state has where nothing else is in it.
local rest = {__index = {e = 0, strikes = 0, rate = 0, rateAt = 0, ceiling = 0, cap = 0, capAt = 0, share1 = 0, share2 = 0,
  share3 = 0, line1 = 0, line2 = 0, line3 = 0, fair = 0, part1 = 0, part2 = 0, part3 = 0}}

-- permille is the rate that Gmail seems to give: see learned.go.
local function permille(s)
  if s.rate == 0 then return FULL_RATE end
  local function grow(rate, bound, perMinute, left)
    if rate >= bound then return rate, left end
    local need = floor((bound - rate) * MINUTE / perMinute)
    if left >= need then return bound, left - need end
    return rate + floor(left * perMinute / MINUTE), 0
  end
  local near, far = floor(s.ceiling * 970 / 1000), floor(s.ceiling * 1030 / 1000)
  local rate, left = grow(s.rate, near, FAST, max(now - s.rateAt, 0))
  rate, left = grow(rate, far, SLOW, left)
  rate = grow(rate, FULL_RATE, FAST, left)
  return min(rate, FULL_RATE)
end

local function forgotten(s)
  if s.rate == 0 then return 0 end
  local near, far = floor(s.ceiling * 970 / 1000), floor(s.ceiling * 1030 / 1000)
  return s.rateAt + max(floor((near - s.rate) * MINUTE / FAST), 0)
    + max(floor((min(far, FULL_RATE) - max(s.rate, near)) * MINUTE / SLOW), 0)
    + max(floor((FULL_RATE - max(s.rate, far)) * MINUTE / FAST), 0)
end

local function scaled(cost, rate)
  if rate == FULL_RATE then return cost end
  return floor((cost * FULL_RATE + rate - 1) / rate)
end

-- reach is when a bucket is full at the latest.
local function reach(s, cap)
  return (s.e > now and s.e or now) + scaled(cap, s.rate == 0 and FULL_RATE or s.rate) + longest
end

-- settle ends what no refusal and no charge can have brought about, and forgets what is over. It returns whether a clock
-- that was set back made it change something.
local function settle(s, cap)
  if s.e == 0 and s.rate == 0 then
    if s.full > now + cap + longest then return now + cap, true end
    return s.full, false
  end
  local repaired = false
  if s.e > now + PAUSE_MAX then s.e, repaired = now, true end
  if s.rateAt > max(now, s.e) then s.rateAt, repaired = now, true end
  if now - s.e >= STRIKE_MEMORY then s.e, s.strikes = 0, 0 end
  if forgotten(s) <= now then s.rate, s.rateAt, s.ceiling = 0, 0, 0 end
  if s.full > reach(s, cap) then return (s.e > now and s.e or now) + cap, true end
  return s.full, repaired
end

-- lasts is until when there is something to remember.
local function lasts(s)
  if s.e == 0 and s.rate == 0 then return s.full end
  return max(s.full, s.e > 0 and s.e + STRIKE_MEMORY or 0, forgotten(s))
end

-- times reads a group of a time for each class into fields; those that are not after since are left out. It returns
-- whether it is such a group.
local function times(s, name, group, since)
  if group == '' then return true end
  local a, b, c = match(group, '^(%d+) (%d+) (%d+)$')
  if not a then return false end
  a, b, c = a + 0, b + 0, c + 0
  if a > since then s[name .. 1] = a end
  if b > since then s[name .. 2] = b end
  if c > since then s[name .. 3] = c end
  return true
end

-- timesOf writes what times reads.
local function timesOf(a, b, c)
  if a == 0 and b == 0 and c == 0 then return '' end
  return format('%d %d %d', a, b, c)
end

-- forget clears what is for one class only.
local function forget(s)
  for _, name in ipairs({'share', 'line', 'part'}) do
    s[name .. 1], s[name .. 2], s[name .. 3] = nil, nil, nil
  end
  s.fair = nil
end

local function readProject(s)
  local full, born, epoch, users, previous, day, used, i = match(s or '', '^2 (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)()|')
  if not full then return nil end
  local p = setmetatable({full = full + 0, born = born + 0, epoch = epoch + 0, users = users + 0, previous = previous + 0,
    day = day + 0, used = used + 0}, rest)
  if sub(s, i) == '|||' then return p end
  local pause, share, line = match(s, PROJECT_GROUPS, i)
  if not (pause and times(p, 'share', share, now - SHARE_MEMORY) and times(p, 'line', line, now)) then return nil end
  if pause ~= '' then
    local e, strikes, rate, rateAt, ceiling = match(pause, '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
    if not e then return nil end
    p.e, p.strikes, p.rate, p.rateAt, p.ceiling = e + 0, strikes + 0, rate + 0, rateAt + 0, ceiling + 0
  end
  return p
end

local function loadProject(s)
  local p, today = readProject(s), floor((now - DAY_SHIFT) / DAY)
  if not p then
    return setmetatable({full = now + capP, born = now, epoch = 0, users = 0, previous = 0, day = today, used = 0, dirty = true,
      missing = true}, rest)
  end
  p.full, p.dirty = settle(p, capP)
  if p.day ~= today then p.day, p.used = today, 0 end
  if p.born > now then p.born, p.dirty = now, true end
  if p.dirty then forget(p) end
  return p
end

local function saveProject(key, p)
  local pause, life = '', lasts(p) - now + margin
  if life < PROJECT_LIFE then life = PROJECT_LIFE end
  if p.e > 0 or p.rate > 0 then pause = format('%d %d %d %d %d', p.e, p.strikes, p.rate, p.rateAt, p.ceiling) end
  redis.call('PSETEX', key, format('%d', ceil(life / 1000)), format('2 %d %d %d %d %d %d %d', p.full, p.born, p.epoch, p.users,
    p.previous, p.day, p.used) .. '|' .. pause .. '|' .. timesOf(p.share1, p.share2, p.share3) .. '|'
    .. timesOf(p.line1, p.line2, p.line3))
end

-- prune forgets calls that are over. u.last is the last record's time.
local function prune(u)
  local recs, i, n = u.recs, 1, #u.recs
  while n > 0 do
    u.last = sub(recs, n - 18, n - 3) + 0
    if u.last <= now + longest then break end
    u.live = u.live - sub(recs, n - 2, n)
    n, u.dirty = n - RECORD, true
  end
  while i < n and sub(recs, i + 12, i + 27) + LEASE <= now do
    u.live = u.live - sub(recs, i + 28, i + 30)
    i = i + RECORD
  end
  if i > 1 or n < #recs then u.recs = sub(recs, i, n) end
end

local function insert(u, id, at, n)
  local recs = u.recs
  local i = #recs
  local rec = format('%s%016d%03d', id, at, n)
  if i > 0 and at < u.last then
    while i > 0 and sub(recs, i - 18, i - 3) + 0 > at do i = i - RECORD end
    u.recs = sub(recs, 1, i) .. rec .. sub(recs, i + 1)
  else
    u.recs, u.last = recs .. rec, at
  end
end

-- restart notes until when the user's debt is accounted for, unless that would lapse at once.
local function restart(u, at, since)
  if at - RESTART_AGE + LEASE > now then insert(u, format('!%011d', since), at - RESTART_AGE, 0) end
end

local function readUser(s)
  local full, live, epoch, i = match(s or '', '^2 (%d+) (%d+) (%d+)()|')
  if not full then return nil end
  local u = setmetatable({full = full + 0, live = live + 0, epoch = epoch + 0, recs = ''}, rest)
  if sub(s, i, i + 4) == '|||||' then
    u.recs = sub(s, i + 5)
  else
    local pause, share, line, parts, recs = match(s, USER_GROUPS, i)
    if not (pause and times(u, 'share', share, now - SHARE_MEMORY) and times(u, 'line', line, now)) then return nil end
    if parts ~= '' then
      local fair, parts = match(parts, '^(%d+) (.*)$')
      if not (fair and times(u, 'part', parts, now - FAIR_MEMORY)) then return nil end
      if fair + 0 > now - FAIR_MEMORY then u.fair = fair + 0 end
    end
    if pause ~= '' then
      local e, strikes, rate, rateAt, ceiling, cap, capAt = match(pause, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
      if not e then return nil end
      u.e, u.strikes, u.rate, u.rateAt, u.ceiling, u.cap, u.capAt =
        e + 0, strikes + 0, rate + 0, rateAt + 0, ceiling + 0, cap + 0, capAt + 0
    end
    u.recs = recs
  end
  if #u.recs % RECORD ~= 0 then return nil end
  return u
end

local function loadUser(s, born)
  local u = readUser(s)
  if not u then
    u = setmetatable({full = 0, live = 0, epoch = 0, recs = '', missing = true}, rest)
    if now - born < YOUNG then
      u.full, u.dirty = now + capU, true
      restart(u, now, floor(born / RESTART_UNIT))
    end
    return u
  end
  u.full, u.dirty = settle(u, capU)
  if u.capAt > now then u.capAt, u.dirty = now, true end
  if u.recs ~= '' then prune(u) end
  if u.dirty then forget(u) end
  return u
end

local function saveUser(key, u)
  local t, pause, parts = lasts(u), '', ''
  if u.cap > 0 then t = max(t, u.capAt + CAP_MEMORY) end
  if u.recs ~= '' and t < u.last + LEASE then t = u.last + LEASE end
  local share, line = timesOf(u.share1, u.share2, u.share3), timesOf(u.line1, u.line2, u.line3)
  if line ~= '' then t = max(t, u.line1, u.line2, u.line3) end
  if t < now then t = now end
  if u.e > 0 or u.rate > 0 or u.cap > 0 then
    pause = format('%d %d %d %d %d %d %d', u.e, u.strikes, u.rate, u.rateAt, u.ceiling, u.cap, u.capAt)
  end
  if u.fair > 0 or u.part1 > 0 or u.part2 > 0 or u.part3 > 0 then
    parts = format('%d %d %d %d', u.fair, u.part1, u.part2, u.part3)
  end
  redis.call('PSETEX', key, format('%d', ceil((t - now + margin) / 1000)), format('2 %d %d %d', u.full, u.live, u.epoch)
    .. '|' .. pause .. '|' .. share .. '|' .. line .. '|' .. parts .. '|' .. u.recs)
end

local function release(u, ids)
  for k = 1, #ids, 12 do
    local i = find(u.recs, sub(ids, k, k + 11), 1, true)
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
  if u.cap == 0 then return slots end
  return min(slots, u.cap + floor(max(now - u.capAt, 0) / CAP_GROW))
end

local function seen(u, p)
  if u.epoch == thisEpoch and p.epoch == thisEpoch then return end
  if p.epoch ~= thisEpoch then
    p.previous = p.epoch == thisEpoch - 1 and p.users or 0
    p.epoch, p.users = thisEpoch, 0
  end
  u.epoch, p.users = thisEpoch, p.users + 1
  u.dirty, p.dirty = true, true
end

local function use(t, cost)
  if t == 0 then return now + cost end
  if t <= now then return t + cost end
  return max(t, now + cost)
end

local function ofShare(c, cost) return floor((cost * 100 + c.percent - 1) / c.percent) end

local function denial(u, p, c, byProject, bucketWait, wait, turn, fair, crowded)
  if crowded and max(wait, turn) < IN_FLIGHT_RETRY then
    local retry = min(tonumber(sub(u.recs, 13, 28)) + LEASE - now, IN_FLIGHT_RETRY)
    if retry >= max(wait, turn) then return 3, retry, 0, 0, retry, 0, 0, 0 end
  end
  local code = 1
  if byProject and wait > 0 then
    code = p.e > now and 5 or 2
  elseif u.e > now then
    code = 4
  end
  local ahead, line, from, length = max(bucketWait - wait, 0), u[c.line], now + max(wait, fair), c.length
  if byProject and wait > 0 and fair <= wait and not c.counts and c.patience > 0 then
    from = max(from, min(p[c.line], from + LINE))
    p[c.line], p.dirty = from + c.project, true
  end
  if c.counts then
    from = max(from, c.from)
    length = max(c.to - max(c.from, now), c.user)
  else
    from = max(from, min(line, from + LINE))
    if from - now > c.patience then return code, max(wait, turn), ahead, 0, wait, 0, 0, 0 end
  end
  if from + length > line then u[c.line], u.dirty = from + length, true end
  return code, from - now, ahead, 0, wait, from, from + length, 0
end

-- denied is how long a bucket denies c that would have it wait; below is from when on its class is below its share.
local function denied(c, wait, below)
  local near, far = wait - c.near, wait - c.far
  if below - now > far then far = below - now end
  return near < far and near or far
end

-- restOfDay is how long the day's units are used up.
local function restOfDay(p)
  if dayUnits == 0 or p.used < dayUnits then return 0 end
  return (p.day + 1) * DAY + DAY_SHIFT - now
end

-- slow is the charge where Gmail gives less than the configured rate: it is dearer.
local function slow(c, u, p)
  local s = {}
  for name, value in pairs(c) do s[name] = value end
  local user, project = permille(u), permille(p)
  s.user, s.length, s.project = scaled(c.user, user), scaled(c.length, user), scaled(c.project, project)
  return s
end

local function decide(u, p, c)
  local i = u.recs ~= '' and find(u.recs, c.id, 1, true)
  if i then
    return 0, max(tonumber(sub(u.recs, i + 12, i + 27)) - now, 0), 0, 0, 0, 0, 0, 0
  end
  if c.class == 1 then
    local left = restOfDay(p)
    if left > 0 then return 6, left, 0, 0, left, 0, 0, 0 end
  end
  if u.rate > 0 or p.rate > 0 then c = slow(c, u, p) end
  local costU, costP = c.user, c.project
  local before = u.full > now and u.full or now
  local full = (p.full > now and p.full or now) + costP
  local userWait = before + costU - now - (costU > capU and costU or capU)
  local projectWait = full - now - (costP > capP and costP or capP)
  local wait, denies, turn, fair, byProject = 0, 0, 0, 0, false
  if userWait > 0 or projectWait > 0 then wait = userWait > projectWait and userWait or projectWait end
  local active = projectWait > 0 and max(p.users, p.previous, 1)
  if wait > 0 or c.counts or u[c.line] > 0 or p[c.line] > 0 then
    local shareU, shareP, lineP = u[c.share], p[c.share], p[c.line]
    local userDenies = denied(c, userWait, u.e > shareU and u.e or shareU)
    local projectDenies = denied(c, projectWait, p.e > shareP and p.e or shareP)
    if active and active > 1 then
      fair = max(min(u.fair, u[c.part]) - now, 0)
      if fair > 0 then projectDenies = max(projectDenies, min(projectWait, fair)) end
    end
    if not c.counts and lineP > now then
      projectDenies = max(projectDenies, min(lineP, p.full - floor(capP / 2)) - now)
    end
    denies, byProject = max(userDenies, projectDenies, 0), projectDenies > userDenies
    turn = min(c.counts and c.from or u[c.line], u.full - floor(capU / 2)) - now
  end
  local most = inFlightCap(u)
  local crowded = u.live > 0 and u.live + c.calls > most
  if denies > 0 or turn > 0 or crowded then
    return denial(u, p, c, byProject, wait, denies, turn, fair, crowded)
  end
  local at, from, to = now + wait, 0, 0
  u.full, u.dirty = (u.full > at and u.full or at) + costU, true
  p.full, p.dirty = full, true
  if userWait > 0 then u[c.share] = use(u[c.share], ofShare(c, costU)) end
  if active then
    local part = floor(min(costP * active, MAX_PART) * 10 / 9)
    p[c.share], u.fair, u[c.part] = use(p[c.share], ofShare(c, costP)), use(u.fair, part), use(u[c.part], ofShare(c, part))
  end
  insert(u, c.id, at, c.calls)
  u.live = u.live + c.calls
  if c.counts and now < c.from then
    from, to = now, now + c.to - c.from
    if u[c.line] == c.to then u[c.line] = to end
  end
  local usedBefore = p.used
  p.used = usedBefore + c.units
  local signs = usedBefore < dayUnits and p.used >= dayUnits and 1 or 0
  if 4 * u.live > most then signs = signs + 2 end
  return 0, wait, u.full, full, u.full - before, from, to, signs
end

-- recall: see recall.go.
local function recall(u, p, bornU, usU, bornP, usP)
  if usU > 0 and (u.missing or bornU ~= p.born) then
    local full, since, more, i = now + usU, floor(p.born / RESTART_UNIT), 0, find(u.recs, '!', 1, true)
    local known = i and sub(u.recs, i + 12, i + 27) + RESTART_AGE + capU
    if i then since = tonumber(sub(u.recs, i + 1, i + 11)) end
    if not i or full > known and (u.missing or bornU < since * RESTART_UNIT) then
      if i then
        u.recs, more = sub(u.recs, 1, i - 1) .. sub(u.recs, i + RECORD), max(u.full - known, 0)
      else
        full = max(full, u.full)
      end
      restart(u, min(full - capU, now + longest), since)
      u.full, u.dirty = min(max(u.full, full + more), reach(u, capU)), true
    end
  end
  if usP > 0 and (p.missing or bornP ~= p.born) then
    p.full, p.dirty = min(max(p.full, now + usP), reach(p, capP)), true
  end
end

-- kind reads what requests have in common: see charge.encode.
local function kind(s)
  local calls, class, units, user, project, near, far, share, patience, length = match(s, KIND)
  class = class + 1
  return {calls = calls + 0, class = class, units = units + 0, user = user + 0, project = project + 0, near = near + 0,
    far = far + 0, percent = share + 0, patience = patience + 0, length = length + 0, share = 'share' .. class,
    line = 'line' .. class, part = 'part' .. class}
end

-- acquire: KEYS[2] and on are users, and from 8 on ARGV are requests, each of one of them, see combiner. They are decided
-- one after the other. The answer is eight numbers a decision, then the time and the project's birth.
if ARGV[1] == 'acquire' then
  local stored = redis.call('MGET', unpack(KEYS))
  local p = loadProject(stored[1])
  local users, kinds, answer, n, borns = {}, {}, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 0, format(' %d %d ', p.born, p.born)
  for r = 8, #ARGV do
    local s = ARGV[r]
    local k, id = sub(s, 1, 2) + 0, sub(s, 4, 15)
    local what, ticket, holds, ended, told = match(s, '^([^|]*)|([^|]*)|([^|]*)|([^|]*)|()', 17)
    local u, c = users[k], kinds[what]
    if not u then
      u = loadUser(stored[k], p.born)
      users[k] = u
    end
    if not c then
      c = kind(what)
      kinds[what] = c
    end
    if holds ~= '' then
      local holdU, holdP = match(holds, '(%d+) (%d+)')
      if holdU + 0 > 0 then u.e, u.dirty = max(u.e, now + holdU), true end
      if holdP + 0 > 0 then p.e, p.dirty = max(p.e, now + holdP), true end
    end
    if u.missing or p.missing or sub(s, told, told + #borns - 1) ~= borns then
      local bornU, bornP, usU, usP = match(s, '(%S+) (%S+) (%d+) (%d+)$', told)
      recall(u, p, bornU + 0, usU + 0, bornP + 0, usP + 0)
      u.missing, p.missing = nil, nil
    end
    if ended ~= '' then release(u, ended) end
    seen(u, p)
    c.id, c.counts = id, false -- a ticket counts while its place is there
    if ticket ~= '' then
      local from, to = match(ticket, '(%d+) (%d+)')
      c.from, c.to = from + 0, to + 0
      c.counts = now <= c.to + GRACE and (c.to <= now or c.to <= u[c.line])
    end
    answer[n + 1], answer[n + 2], answer[n + 3], answer[n + 4], answer[n + 5], answer[n + 6], answer[n + 7], answer[n + 8] =
      decide(u, p, c)
    n = n + 8
  end
  if p.dirty then saveProject(KEYS[1], p) end
  for k, u in pairs(users) do
    if u.dirty then saveUser(KEYS[k], u) end
  end
  answer[n + 1], answer[n + 2] = now, p.born
  return answer
end

local function giveBack(full, e, cap, after, taken)
  if full > now + cap then taken = taken - max(full - after, 0) end
  local back = full - max(min(after - now, taken), 0)
  if e > now then back = max(back, e + cap) end
  return back
end

local function refund(u, p)
  local i = find(u.recs, ARGV[8], 1, true)
  if not i then return {0} end
  local n = tonumber(sub(u.recs, i + 28, i + 30))
  if n == 0 then return {0} end
  u.live = u.live - n
  u.recs = sub(u.recs, 1, i - 1) .. sub(u.recs, i + RECORD)
  u.full = giveBack(u.full, u.e, capU, tonumber(ARGV[9]), tonumber(ARGV[10]))
  p.full = giveBack(p.full, p.e, capP, tonumber(ARGV[11]), tonumber(ARGV[12]))
  if dayUnits == 0 or p.used < dayUnits then p.used = max(p.used - tonumber(ARGV[13]), 0) end
  u.dirty, p.dirty = true, true
  return {1}
end

local function strike(s, cap, stated, admitted)
  s.dirty = true
  if now < s.e or 0 < admitted and admitted < s.e then
    if stated == 0 or now + stated <= s.e then return end
    s.e = now + stated
  else
    local pause = STRIKE_MAX
    if s.strikes < 9 then
      pause = min(STRIKE_BASE * 2 ^ s.strikes, STRIKE_MAX)
      s.strikes = s.strikes + 1
    end
    s.e = now + max(pause, stated)
    if stated == 0 then
      local rate = permille(s)
      s.rate, s.rateAt, s.ceiling = max(floor(rate * (s.rate == 0 and FIRST_CUT or NEXT_CUT) / 1000), LEAST_RATE), s.e, rate
    end
  end
  s.full = max(s.full, s.e + cap)
end

local function crowd(u, admitted)
  if u.cap > 0 and (now - u.capAt < CAP_EPISODE or 0 < admitted and admitted < u.capAt) then return end
  u.cap, u.capAt, u.dirty = max(floor(inFlightCap(u) / 2), 1), now, true
end

local function penalize(u, p)
  local scope, stated, admitted = ARGV[8], tonumber(ARGV[9]), tonumber(ARGV[10])
  if scope == 'project' then
    strike(p, capP, stated, admitted)
  else
    if scope == 'concurrency' then crowd(u, admitted) end
    if scope == 'user' or stated > 0 then strike(u, capU, stated, admitted) end
  end
  return {max(u.e, p.e, now) - now}
end

local function reset(s, cap)
  s.e = 0
  s.full = min(max(s.full, now + cap), reach(s, cap))
  s.strikes, s.rate, s.rateAt, s.ceiling, s.dirty = 0, 0, 0, 0, true
end

-- release needs no project: KEYS are users, each with the ids that ended in ARGV from 8 on.
if ARGV[1] == 'release' then
  for k = 1, #KEYS do
    local s = redis.call('GET', KEYS[k])
    if s then
      local u = loadUser(s, 0)
      release(u, ARGV[7 + k])
      if u.dirty then saveUser(KEYS[k], u) end
    end
  end
  return {#KEYS}
end

local stored = redis.call('MGET', KEYS[1], KEYS[2])
local p = loadProject(stored[1])
local u = loadUser(stored[2], p.born)
local answer
if ARGV[1] == 'refund' then
  answer = refund(u, p)
elseif ARGV[1] == 'penalize' then
  answer = penalize(u, p)
elseif ARGV[8] == 'project' then
  reset(p, capP)
  u.dirty, answer = false, {1} -- it is nobody
else
  reset(u, capU)
  u.cap, u.capAt, answer = 0, 0, {1}
end
if p.dirty then saveProject(KEYS[1], p) end
if u.dirty then saveUser(KEYS[2], u) end
return answer
