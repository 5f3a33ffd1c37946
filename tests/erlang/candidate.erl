%% A dictionary that the original's candidates share, as a callback module of its locks_leader.
%%
%% The leader asks the candidates for theirs, and hands over what it makes of them; its own values
%% win. It carries {put, Key, Value} out and passes it on; {get, Key} is answered by the leader.
-module(candidate).
-export([start/2, start_worker/2, dictionary/1, leader/1]).
-export([init/1, elected/3, surrendered/3, handle_DOWN/3, handle_leader_call/4,
         handle_leader_cast/3, from_leader/3, handle_call/4, handle_cast/3, handle_info/3]).

start(Resource, Dictionary) ->
    locks_leader:start_link(?MODULE, Dictionary, [{resource, Resource}]).

start_worker(Resource, Dictionary) ->
    locks_leader:start_link(?MODULE, Dictionary, [{resource, Resource}, {role, worker}]).

dictionary(Candidate) -> locks_leader:info(Candidate, mod_state).

leader(Candidate) -> locks_leader:info(Candidate, leader).

init(Dictionary) -> {ok, Dictionary}.

elected(Dictionary, Election, _) ->
    {Answers, _} = locks_leader:ask_candidates(dictionary, Election),
    Merged = lists:foldl(fun({_, Other}, Sum) -> maps:merge(Other, Sum) end, Dictionary, Answers),
    {ok, Merged, Merged}.

surrendered(_, Dictionary, _) -> {ok, Dictionary}.

handle_DOWN(_, Dictionary, _) -> {ok, Dictionary}.

handle_leader_call({put, Key, Value}, _, Dictionary, _) ->
    {reply, ok, {put, Key, Value}, Dictionary#{Key => Value}};
handle_leader_call({get, Key}, _, Dictionary, _) ->
    {reply, maps:get(Key, Dictionary, undefined), Dictionary}.

handle_leader_cast({put, Key, Value}, Dictionary, _) ->
    {ok, {put, Key, Value}, Dictionary#{Key => Value}}.

from_leader({put, Key, Value}, Dictionary, _) -> {ok, Dictionary#{Key => Value}};
from_leader(Merged, _, _) -> {ok, Merged}.

handle_call(dictionary, _, Dictionary, _) -> {reply, Dictionary, Dictionary}.

handle_cast(_, Dictionary, _) -> {ok, Dictionary}.

handle_info(_, Dictionary, _) -> {ok, Dictionary}.
