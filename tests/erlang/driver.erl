%% Carries out commands that come as lines on standard input, for the tests in this folder.
%%
%% A command is {Number, Client, Module, Function, Arguments} in the external term format, in
%% hexadecimal. The process called Client calls the function; each client does one thing at a time.
%% A line {Number, ok | error | exit, Result} in the same form is the answer. Standard input that ends
%% ends the node.
-module(driver).
-export([start/0, messages/1, client/1, kill/1, monitor_pid/1, monitor_name/2, down/1,
         start_original/0, self_pid/0, ready/0]).

start() ->
    spawn(fun() -> answer(0, ok, node()), loop() end).

loop() ->
    case io:get_line("") of
        eof -> halt(0);
        {error, _} -> halt(1);
        Line ->
            {Number, Name, M, F, A} = binary_to_term(binary:decode_hex(string:trim(list_to_binary(Line)))),
            client(Name) ! {call, Number, M, F, A},
            loop()
    end.

%% The process with this name; it is made on first use, and again after its death.
client(Name) ->
    case whereis(Name) of
        undefined ->
            Pid = spawn(fun() -> obey([]) end),
            register(Name, Pid),
            Pid;
        Pid -> Pid
    end.

obey(Kept) ->
    receive
        {call, Number, M, F, A} ->
            put(kept, Kept),
            try apply(M, F, A) of
                Result -> answer(Number, ok, Result)
            catch
                Class:Reason -> answer(Number, Class, Reason)
            end,
            obey(get(kept));
        Other ->
            obey([Other | Kept])
    end.

answer(Number, Outcome, Result) ->
    Hex = binary:encode_hex(term_to_binary({Number, Outcome, Result})),
    io:put_chars([Hex, $\n]).

%% In a client: what it was sent within that many milliseconds, or so far.
messages(Wait) ->
    receive
        {call, _, _, _, _} = Call -> self() ! Call
    after 0 -> ok
    end,
    Kept = get(kept),
    put(kept, []),
    lists:reverse(Kept) ++ drain(Wait).

drain(Wait) ->
    receive
        Message when element(1, Message) =/= call -> [Message | drain(Wait)]
    after Wait -> []
    end.

self_pid() -> self().

ready() -> ok.

kill(Pid) when is_pid(Pid) -> exit(Pid, kill);
kill(Name) -> exit(whereis(Name), kill).

monitor_pid(Pid) -> erlang:monitor(process, Pid).

monitor_name(Name, Node) -> erlang:monitor(process, {Name, Node}).

%% In a client: waits for the end of what it monitors.
down(Ref) ->
    case lists:keyfind(Ref, 2, get(kept)) of
        {'DOWN', Ref, process, _, Reason} -> Reason;
        false -> receive {'DOWN', Ref, process, _, Reason} -> Reason after 10000 -> timeout end
    end.

%% The original as an application, without its application file.
start_original() ->
    Spec = {application, locks,
            [{description, "the original"}, {vsn, "0"}, {modules, []}, {registered, []},
             {applications, [kernel, stdlib]}, {mod, {locks_app, []}}]},
    application:load(Spec),
    application:start(locks).
