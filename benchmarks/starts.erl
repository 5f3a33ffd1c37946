%% A candidate of the original's, in a node of its own, for benchmarks/starts.py. It does what benchmarks/candidate.py
%% does: each line on standard input is a list with a command and its arguments; the answer is a line of JSON.
%% The nodes to connect with are the arguments behind `-extra`.
-module(starts).
-export([start/0]).
-export([init/1, elected/3, surrendered/3, handle_DOWN/3, handle_leader_call/4,
         handle_leader_cast/3, from_leader/3, handle_call/4, handle_cast/3, handle_info/3]).

start() ->
    ok = application:start(locks),
    notes = ets:new(notes, [named_table, public, ordered_set]),
    [net_kernel:connect_node(list_to_atom(Peer)) || Peer <- init:get_plain_arguments()],
    io:format("~s~n", [node()]),
    loop(none).

loop(Candidate) ->
    case io:get_line("") of
        eof -> halt(0);
        Line ->
            {ok, Tokens, _} = erl_scan:string(Line ++ "."),
            {ok, [Command | Arguments]} = erl_parse:parse_term(Tokens),
            {Answer, Next} = do(list_to_atom(Command), Arguments, Candidate),
            io:format("~s~n", [Answer]),
            loop(Next)
    end.

do(alive, [], Candidate) -> {integer_to_list(1 + length(nodes())), Candidate};
do(forget, [], Candidate) ->
    ets:delete_all_objects(notes),
    erlang:garbage_collect(),
    {"null", Candidate};
do(start, [Resource], _) ->
    note("begun"),
    {ok, Candidate} = locks_leader:start_link(?MODULE, atom_to_list(node()), [{resource, Resource}]),
    {"null", Candidate};
do(tell, [], Candidate) ->
    Notes = [io_lib:format("[\"~s\", ~b, 0, \"~s\"]", [What, At, node()])
             || {{At, _}, What} <- ets:tab2list(notes)],
    {["[[", lists:join(", ", Notes), "], {}]"], Candidate};
do(stop, [], Candidate) ->
    %% On Erlang/OTP 25 the original comes to an end, too, when a candidate does: so it begins anew.
    unlink(Candidate),
    ok = application:stop(locks),
    Ref = monitor(process, Candidate),
    exit(Candidate, kill),
    receive {'DOWN', Ref, _, _, _} -> ok end,
    ok = application:start(locks),
    {"null", none}.

%% The system's time: the same for all nodes of a machine.
note(What) ->
    ets:insert(notes, {{os:system_time(nanosecond), erlang:unique_integer([monotonic])}, What}).

%% A dictionary that the leader brings together and hands over, as benchmarks/candidate.py has it.

init(Who) -> {ok, #{Who => length(Who)}}.

elected(Values, Election, Newcomer) ->
    {Answers, _} = locks_leader:ask_candidates(values, Election),
    Merged = lists:foldl(fun({_, Other}, Sum) -> maps:merge(Other, Sum) end, Values, Answers),
    Newcomer =:= undefined andalso note("elected"),
    {ok, Merged, Merged}.

surrendered(_, Values, _) ->
    note("surrendered"),
    {ok, Values}.

handle_DOWN(_, Values, _) -> {ok, Values}.

handle_leader_call(_, _, Values, _) -> {reply, ok, Values}.

handle_leader_cast(_, Values, _) -> {ok, Values}.

from_leader(Merged, _, _) -> {ok, Merged}.

handle_call(values, _, Values, _) -> {reply, Values, Values}.

handle_cast(_, Values, _) -> {ok, Values}.

handle_info(_, Values, _) -> {ok, Values}.
