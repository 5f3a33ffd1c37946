%% A set of facts that the original's instances share, as a callback module that remembers how it was called.
%%
%% Each has a fact of its own at the start; a leader hands its facts over. One whose fact is `hangs' stays in `elected'.
-module(recorder).
-export([start/3, init/1, elected/3, surrendered/3, handle_DOWN/3, handle_leader_call/4,
         handle_leader_cast/3, from_leader/3, handle_call/4, handle_cast/3, handle_info/3]).

start(Resource, Fact, Role) ->
    locks_leader:start_link(?MODULE, Fact, [{resource, Resource}, {role, Role}]).

init(Fact) -> {ok, {[Fact], []}}.

elected({[<<"hangs">>], _}, _, _) -> timer:sleep(infinity);
elected({Facts, Calls}, _, Who) -> {ok, Facts, {Facts, [{elected, Who} | Calls]}}.

surrendered({_, Calls}, Facts, _) -> {ok, {Facts, [{surrendered, Facts} | Calls]}}.

handle_DOWN(Pid, {Facts, Calls}, _) -> {ok, {Facts, [{handle_DOWN, Pid} | Calls]}}.

handle_leader_call(_, _, State, _) -> {reply, ok, State}.

handle_leader_cast(Fact, {Facts, Calls}, _) -> {ok, Fact, {ordsets:add_element(Fact, Facts), Calls}}.

from_leader(Fact, {Facts, Calls}, _) when is_binary(Fact) ->
    {ok, {ordsets:add_element(Fact, Facts), [{from_leader, Fact} | Calls]}};
from_leader(Facts, {_, Calls}, _) -> {ok, {Facts, [{from_leader, Facts} | Calls]}}.

handle_call(_, _, State, _) -> {reply, ok, State}.

handle_cast(_, State, _) -> {ok, State}.

handle_info({locks_leader, sync_lock_ok, _}, {Facts, Calls}, _) ->
    {ok, {Facts, [{handle_info, <<"merge lock">>} | Calls]}};
handle_info(_, State, _) -> {ok, State}.
