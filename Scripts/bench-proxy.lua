-- What wrk sends for bench_servers.py: tiles 0 to COUNT-1 of a pyramid that is WIDE wide, at zoom ZOOM below PREFIX.
-- ORDER "random" goes on until wrk's time is up; "once" asks for each tile once and stops. A connection waits for PAUSE
-- milliseconds before it asks again.
local ffi = require("ffi")
ffi.cdef [[
    typedef struct { long seconds, nanoseconds; } instant;
    int clock_gettime(int clock, instant *now);
    int getpid(void);
    int kill(int process, int signal);
]]

local function now()
    local instant = ffi.new("instant")
    ffi.C.clock_gettime(1, instant)
    return tonumber(instant.seconds) + tonumber(instant.nanoseconds) / 1e9
end

local prefix, count, order = os.getenv("PREFIX"), tonumber(os.getenv("COUNT")), os.getenv("ORDER")
local wide, zoom = tonumber(os.getenv("WIDE")), tonumber(os.getenv("ZOOM"))
local requests, sent, answered, start = {}, 0, 0, nil

local pause = tonumber(os.getenv("PAUSE"))
if pause > 0 then
    -- Only then, as it makes wrk slower.
    function delay() return pause end
end

function init(args)
    math.randomseed(tonumber(os.getenv("SEED") or 1))
    for i = 0, count - 1 do
        requests[i] = wrk.format("GET", string.format("%s/%d/%d/%d.png", prefix, zoom, math.floor(i / wide), i % wide))
    end
    if order ~= "once" then return end
    -- Only here, as it makes wrk slower.
    function response(status)
        if status ~= 200 then
            print("status " .. status)
            ffi.C.kill(ffi.C.getpid(), 2)
        end
        answered = answered + 1
        if answered ~= count then return end
        print(string.format("ONCE %f", now() - start))
        -- wrk itself would go on until its time is up.
        ffi.C.kill(ffi.C.getpid(), 2)
    end
end

function request()
    if order ~= "once" then return requests[math.random(0, count - 1)] end
    start = start or now()
    local next = requests[math.min(sent, count - 1)]
    sent = sent + 1
    return next
end

function done(summary, latency)
    io.write(string.format('JSON {"requests": %d, "seconds": %f, "p50": %f, "p99": %f, "failed": %d}\n',
        summary.requests, summary.duration / 1e6, latency:percentile(50), latency:percentile(99),
        summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.status
            + summary.errors.timeout))
end
