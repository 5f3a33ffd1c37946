------------------------------ MODULE Deadlocks ------------------------------
(* How agents find deadlocks without a judge, and who gives way.              *)
(* docs/simulator.md says what this leaves out, and how it is checked.        *)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANT Scripts \* Scripts[a]: the locks that agent a wants, one after the other; a larger agent is younger

VARIABLES
    queue, \* queue[l]: the agents that want lock l, the first one has it
    asked, \* asked[a]: how many of its locks agent a has asked for
    moved, \* moved[a][l]: how often agent a has surrendered lock l
    heard, \* heard[a]: the edges that other agents have told agent a
    mail   \* messages between agents, in any order

vars == <<queue, asked, moved, heard, mail>>

Agents == DOMAIN Scripts
Locks == UNION {{Scripts[a][n] : n \in DOMAIN Scripts[a]} : a \in Agents}
Min(a, b) == IF a < b THEN a ELSE b

Init ==
    /\ queue = [l \in Locks |-> <<>>]
    /\ asked = [a \in Agents |-> 0]
    /\ moved = [a \in Agents |-> [l \in Locks |-> 0]]
    /\ heard = [a \in Agents |-> {}]
    /\ mail = {}

(* ---- The wait-for graph: an agent waits for all that stand ahead of it --- *)

EdgesAt(l) ==
    {[by |-> queue[l][p[2]], to |-> queue[l][p[1]], lock |-> l,
      bySince |-> moved[queue[l][p[2]]][l], toSince |-> moved[queue[l][p[1]]][l]] :
        p \in {q \in (DOMAIN queue[l]) \X (DOMAIN queue[l]) : q[1] < q[2]}}

Edges == UNION {EdgesAt(l) : l \in Locks}
Own(a) == {e \in Edges : a \in {e.by, e.to}}

Waits(a, q) == \E l \in Locks : \E n \in DOMAIN q[l] : n > 1 /\ q[l][n] = a

(* ---- What an agent knows: its own edges, and the newest it has heard ----- *)

Places(e) == {<<e.by, e.lock, e.bySince>>, <<e.to, e.lock, e.toSince>>}

IsOld(e, known) ==
    \E f \in known : \E p \in Places(e), q \in Places(f) :
        p[1] = q[1] /\ p[2] = q[2] /\ p[3] < q[3]

Learnt(a, news) ==
    LET all == heard[a] \cup {e \in news : a \notin {e.by, e.to}}
    IN  {e \in all : ~IsOld(e, all \cup Own(a))}

Known(a) == Own(a) \cup Learnt(a, {})

(* ---- The search: through smaller agents only ----------------------------- *)

RECURSIVE Ahead(_, _, _), Behind(_, _, _)
Ahead(a, known, found) ==
    LET more == found \cup {e.to : e \in {f \in known : f.by \in found /\ f.by <= a}}
    IN  IF more = found THEN found ELSE Ahead(a, known, more)
Behind(a, known, found) ==
    LET more == found \cup {e.by : e \in {f \in known : f.to \in found /\ f.to <= a}}
    IN  IF more = found THEN found ELSE Behind(a, known, more)

IsAhead(a) == Ahead(a, Known(a), {a})
IsBehind(a) == Behind(a, Known(a), {a})

\* The edges that close a circle in which a is the largest.
ClosingIn(a, known) == {e \in known : e.to = a /\ e.by < a /\ e.by \in Ahead(a, known, {a})}
Closing(a) == ClosingIn(a, Known(a))

\* Of each pair of larger agents, one behind a and one ahead of it, the smaller one is told.
Targets(a) ==
    {Min(b, c) : b \in {d \in IsBehind(a) : d > a}, c \in {d \in IsAhead(a) : d > a}}

News(a, b) ==
    {e \in Known(a) :
        /\ \/ e.by <= a /\ e.by \in IsAhead(a)
           \/ e.to <= a /\ e.to \in IsBehind(a)
        /\ Learnt(b, {e}) # Learnt(b, {})
        /\ \A m \in mail : m.to = b => e \notin m.edges}

(* ---- What happens -------------------------------------------------------- *)

\* The lock table is q now. Who does not wait any more, or is of a resolved circle, forgets.
Table(q, forget) ==
    /\ queue' = q
    /\ heard' = [a \in Agents |-> IF Waits(a, q) /\ a \notin forget THEN heard[a] ELSE {}]

Without(a, s) == SelectSeq(s, LAMBDA b : b # a)

Ask(a) ==
    /\ asked[a] < Len(Scripts[a]) /\ ~Waits(a, queue)
    /\ asked' = [asked EXCEPT ![a] = @ + 1]
    /\ Table([queue EXCEPT ![Scripts[a][asked'[a]]] = Append(@, a)], {})
    /\ UNCHANGED <<moved, mail>>

Has(a) == {l \in Locks : \E n \in DOMAIN queue[l] : queue[l][n] = a}

End(a) ==
    /\ asked[a] = Len(Scripts[a]) /\ ~Waits(a, queue) /\ Has(a) # {}
    /\ Table([l \in Locks |-> Without(a, queue[l])], {})
    /\ UNCHANGED <<asked, moved, mail>>

Yield(a) == \E e \in Closing(a) :
    /\ moved' = [moved EXCEPT ![a][e.lock] = @ + 1]
    /\ Table([queue EXCEPT ![e.lock] = Append(Without(a, @), a)], IsAhead(a) \cap IsBehind(a))
    /\ UNCHANGED <<asked, mail>>

Tell(a) == Closing(a) = {} /\ \E b \in Targets(a) :
    /\ Waits(b, queue) /\ News(a, b) # {}
    /\ mail' = mail \cup {[to |-> b, edges |-> News(a, b)]}
    /\ UNCHANGED <<queue, asked, moved, heard>>

Hear(m) ==
    /\ mail' = mail \ {m}
    /\ heard' = [heard EXCEPT ![m.to] = IF Waits(m.to, queue) THEN Learnt(m.to, m.edges) ELSE {}]
    /\ UNCHANGED <<queue, asked, moved>>

AllDone == mail = {} /\ \A a \in Agents : asked[a] = Len(Scripts[a]) /\ Has(a) = {}

Next ==
    \/ \E a \in Agents : Ask(a) \/ End(a) \/ Yield(a) \/ Tell(a)
    \/ \E m \in mail : Hear(m)
    \/ AllDone /\ UNCHANGED vars

Spec == Init /\ [][Next]_vars /\ WF_vars(Next)

(* ---- What is checked ----------------------------------------------------- *)

\* The oldest agent of all never gives way, so it gets its locks, and then the next one is the oldest.
OldestNeverYields == \A l \in Locks : moved[1][l] = 0

\* Who gives way is the youngest of a circle that is there: no phantom deadlocks.
OnlyRealCircles == [][\A a \in Agents : moved'[a] # moved[a] => ClosingIn(a, Edges) # {}]_vars

\* TLC looks for states without a next one, too: nobody waits for ever.
EverybodyEnds == <>AllDone
==============================================================================
