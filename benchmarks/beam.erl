%% The same work as benchmarks/beam.py does, with the original. A line on standard input names the work
%% and its size; a line on standard output has the nanoseconds for one operation, or `never`.
-module(beam).
-export([start/0]).

-define(LIMIT, 2000). % milliseconds after which it counts as never

start() ->
    ok = application:start(locks),
    io:format("ready~n"),
    loop().

loop() ->
    case io:get_line("") of
        eof -> halt(0);
        Line ->
            [Work | Sizes] = string:lexemes(string:trim(Line), " "),
            Result = case apart(list_to_atom(Work), [list_to_integer(S) || S <- Sizes]) of
                         never -> "never";
                         Nanoseconds -> integer_to_list(round(Nanoseconds))
                     end,
            io:format("~s~n", [Result]),
            loop()
    end.

%% In a process of its own, so that nothing is left of what does not come to an end.
apart(Work, Sizes) ->
    {Pid, Ref} = spawn_monitor(fun() -> exit({done, work(Work, Sizes)}) end),
    receive
        {'DOWN', Ref, _, _, {done, Result}} -> Result;
        {'DOWN', Ref, _, _, _} -> restart(), never
    after ?LIMIT ->
            exit(Pid, kill),
            receive {'DOWN', Ref, _, _, _} -> ok end,
            restart(),
            never
    end.

restart() ->
    application:stop(locks),
    ok = application:start(locks).

now_ns() -> erlang:monotonic_time(nanosecond).

transaction(Id) ->
    {Agent, _} = locks:begin_transaction(),
    locks:lock(Agent, Id, write),
    Agent.

%% One client, one transaction after the other.
work(same, [N]) ->
    Begun = now_ns(),
    [locks:end_transaction(transaction([bench, 1])) || _ <- lists:seq(1, N)],
    (now_ns() - Begun) / N;
%% A new client for each transaction.
work(fresh, [N]) ->
    Begun = now_ns(),
    [begin
         {_, Ref} = spawn_monitor(fun() -> locks:end_transaction(transaction([bench, 1])) end),
         receive {'DOWN', Ref, _, _, normal} -> ok end
     end || _ <- lists:seq(1, N)],
    (now_ns() - Begun) / N;
%% Clients that want the same lock, and let the others run once while they have it, and once after.
work(shared, [Clients, Each]) ->
    Turn = fun() ->
                   Agent = transaction([bench, 1]),
                   erlang:yield(),
                   locks:end_transaction(Agent),
                   erlang:yield()
           end,
    crew(Clients, fun(_) -> [Turn() || _ <- lists:seq(1, Each)] end) / (Clients * Each);
%% A ring of clients; from the last request until all are done.
work(ring, [Size]) ->
    Self = self(),
    Clients = [spawn_link(fun() -> ring(Self, I, Size) end) || I <- lists:seq(1, Size)],
    [receive {ready, Client} -> ok end || Client <- Clients],
    {First, [Last]} = lists:split(Size - 1, Clients),
    [begin Client ! go, timer:sleep(20) end || Client <- First],
    Begun = now_ns(),
    Last ! go,
    [receive {done, Client} -> ok end || Client <- Clients],
    now_ns() - Begun;
%% As many agents hold a row each; one more asks for the table, then they end.
work(table, [Rows]) ->
    Agents = [transaction([t, I]) || I <- lists:seq(1, Rows)],
    Self = self(),
    Client = spawn_link(fun() ->
                                {Agent, _} = locks:begin_transaction(),
                                Begun = now_ns(),
                                locks:lock_nowait(Agent, [t], write),
                                Self ! {asked, now_ns() - Begun},
                                locks:await_all_locks(Agent),
                                Self ! {granted, now_ns()},
                                locks:end_transaction(Agent)
                        end),
    Asking = receive {asked, Took} -> Took end,
    timer:sleep(1),
    Begun = now_ns(),
    [locks:end_transaction(Agent) || Agent <- Agents],
    Granted = receive {granted, At} -> At end,
    unlink(Client),
    Asking + Granted - Begun.

ring(Main, I, Size) ->
    Agent = transaction([ring, I]),
    Main ! {ready, self()},
    receive go -> ok end,
    locks:lock(Agent, [ring, I rem Size + 1], write),
    locks:end_transaction(Agent),
    Main ! {done, self()}.

%% Nanoseconds until all clients are done.
crew(Count, Work) ->
    Self = self(),
    Clients = [spawn_link(fun() ->
                                  receive go -> ok end,
                                  Work(I),
                                  Self ! {done, self()}
                          end) || I <- lists:seq(1, Count)],
    Begun = now_ns(),
    [Client ! go || Client <- Clients],
    [receive {done, Client} -> ok end || Client <- Clients],
    now_ns() - Begun.
