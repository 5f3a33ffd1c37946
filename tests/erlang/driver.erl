%% Carries out commands that come as lines on standard input, for the tests in this folder.
%%
%% A command is {Number, Client, Module, Function, Arguments} in the external term format, in
%% hexadecimal. The process called Client calls the function; each client does one thing at a time.
%% The answer is a line {Number, ok | error | exit | throw, Result} in the same form. The node ends
%% with its standard input.
-module(driver).
-export([start/0, start_locks/0, messages/1, message/1, self_pid/0, send/2, wait_for_end/0,
         kill/1, monitor_process/1, down/1, sort/1, echo_server/1, settle/2]).
-export([init/1, handle_call/3, handle_cast/2]).

start() ->
    spawn(fun() -> answer(0, ok, node()), loop() end).

loop() ->
    case io:get_line("") of
        eof -> halt(0);
        {error, _} -> halt(1);
        Line ->
            Hex = string:trim(list_to_binary(Line)),
            {Number, Client, M, F, A} = binary_to_term(binary:decode_hex(Hex)),
            client(Client) ! {'$driver', Number, M, F, A},
            loop()
    end.

%% The process with this name; it is made on first use, and again after its death.
client(Name) ->
    case whereis(Name) of
        undefined ->
            Pid = spawn(fun obey/0),
            register(Name, Pid),
            Pid;
        Pid -> Pid
    end.

obey() ->
    receive
        {'$driver', Number, M, F, A} ->
            try apply(M, F, A) of
                Result -> answer(Number, ok, Result)
            catch
                Class:Reason -> answer(Number, Class, Reason)
            end,
            obey()
    end.

answer(Number, Outcome, Result) ->
    Hex = binary:encode_hex(term_to_binary({Number, Outcome, Result})),
    io:put_chars([Hex, $\n]).

%% The original as an application; its application file need not be there.
start_locks() ->
    application:load({application, locks,
                      [{description, "the original"}, {vsn, "0"}, {modules, []},
                       {registered, []}, {applications, [kernel, stdlib]},
                       {mod, {locks_app, []}}]}),
    application:start(locks).

%% What the client was sent, until nothing comes for so many milliseconds.
messages(Wait) ->
    receive
        Message when not is_tuple(Message); element(1, Message) =/= '$driver' ->
            [Message | messages(Wait)]
    after Wait -> []
    end.

%% The next thing that the client is sent.
message(Wait) ->
    receive
        Message when not is_tuple(Message); element(1, Message) =/= '$driver' -> Message
    after Wait -> timeout
    end.

self_pid() -> self().

send(To, Message) -> To ! Message.

wait_for_end() -> receive stop -> ok end.

kill(Name) when is_atom(Name) -> kill(whereis(Name));
kill(Pid) -> exit(Pid, kill).

monitor_process(What) -> erlang:monitor(process, What).

%% The reason for which a monitored process has ended.
down(Reference) ->
    receive {'DOWN', Reference, process, _, Reason} -> Reason after 10000 -> timeout end.

%% Waits until the lock server of this node and these agents have taken in all that they were sent,
%% and all that follows from it, and these clients wait.
%%
%% A look is a call, and comes behind what its process was sent before. So each round of looks takes
%% in at least the next message of whatever is under way. If nothing has changed in more rounds than
%% there are processes, nothing is. Nor is anything settled while an agent outlives its client, or the lock
%% server knows an agent that has ended.
settle(Agents, Clients) ->
    settled(fun() -> look(Agents, Clients) end, [], 0).

settled(_, Before, Rounds) when Rounds > length(Before), Rounds > 0 -> ok;
settled(Look, Before, Rounds) ->
    case Look() of
        Before -> settled(Look, Before, Rounds + 1);
        Now -> settled(Look, Now, 0)
    end.

look(Agents, Clients) ->
    {st, _, Known, _} = sys:get_state(locks_server),
    Seen = [{Agent, knows(Agent)} || Agent <- Agents],
    Ends = [make_ref() || {Agent, gone} <- Seen, is_map_key(Agent, Known)],
    Dying = [make_ref() || {{_, Knows}, Client} <- lists:zip(Seen, Clients),
                           Knows =/= gone, whereis(Client) =:= undefined],
    [Known | Seen] ++ Ends ++ Dying ++ [waits(whereis(Client)) || Client <- Clients].

knows(Agent) ->
    try locks_agent:lock_info(Agent) catch exit:_ -> gone end.

waits(undefined) -> gone;
waits(Pid) ->
    case process_info(Pid, [status, message_queue_len]) of
        [{status, waiting}, Messages] -> Messages;  % the original leaves some
        undefined -> gone;
        _ -> make_ref()  % it is at work: this is never the same again
    end.

sort(Terms) -> lists:sort(Terms).

%% A gen_server that answers with what it is asked.
echo_server(Name) -> gen_server:start({local, Name}, ?MODULE, [], []).

init([]) -> {ok, []}.

handle_call(stop, _, State) -> {stop, asked_to, ok, State};
handle_call(kept, _, State) -> {reply, lists:reverse(State), State};
handle_call(Request, _, State) -> {reply, Request, State}.

handle_cast(Message, State) -> {noreply, [Message | State]}.
