"""The part of figure `recall`'s facts that is measured and never tuned on."""

from __future__ import annotations

from benchmarks.support.fact_forms import forms

LATER = ("At the moment", "As of this month", "For some weeks now")
CORRECTION = ("I was mistaken:", "Let me correct that:", "Scratch that:")
"""How a new value begins, of an update and of a correction."""
FORMS = forms(
    """
preference
I take my coffee with {v}.
My coffee needs {v}.
I only like coffee with {v} in it.
What {do} {who} take in {whose} coffee?
How {do} {who} like {whose} espresso?
What belongs into the morning beverage?
oat milk, brown sugar, cardamom, cinnamon, cream

preference
My favourite films are {v}.
I like {v} best at the films.
I could watch {v} all day, no other films.
Which films {do} {who} like best?
What kind of movie {do} {who} enjoy?
What should be streamed tonight?
silent comedies, westerns, documentaries, samurai epics, heist thrillers

preference
I enjoy {v} in my free time.
My favourite sport is {v}.
I spend my weekends with {v}, my sport.
What is {whose} favourite sport in {whose} free time?
Which exercise {do} {who} love at the weekend?
What keeps {whom} fit?
fencing, bouldering, badminton, rowing, archery

preference
I love {v} ice cream.
My favourite ice cream is {v}.
A scoop of {v} ice cream makes me happy.
Which ice cream {do} {who} love?
What flavour of gelato {do} {who} prefer?
Which frozen dessert should be bought?
pistachio, hazelnut, mango, liquorice, stracciatella

preference
I prefer {v} as my browser.
My browser is {v}.
I use {v} as a browser for the web.
Which browser {do} {who} use?
With which program {do} {who} surf the internet?
What opens links on {whose} laptop?
Firefox, Vivaldi, Brave, Opera, Falkon

preference
I like holidays in the {v} most.
My favourite holidays are in the {v}.
Give me holidays in the {v} and I am happy.
Where {do} {who} like to spend holidays?
What landscape {do} {who} prefer for a vacation?
Which scenery should the travel agency suggest?
mountains, desert, archipelago, countryside, rainforest

preference
I only write with {v}.
My favourite thing to write with are {v}.
For writing I like {v} best.
What {do} {who} like to write with?
Which stationery {do} {who} prefer?
What could be engraved as a present?
fountain pens, pencils, felt tips, ballpoints, quills

preference
I have {v} for breakfast.
My favourite breakfast is {v}.
I start my day with {v} as breakfast.
What {do} {who} have for breakfast?
Which morning meal {do} {who} enjoy?
What should be served at seven o'clock?
porridge, shakshuka, croissants, muesli, pancakes

constraint
I must not take {v}.
My doctor does not allow me to take {v}.
I am not allowed to have {v}.
What {is} {who} not allowed to take?
Which medicine must never be given to {whom}?
What should the pharmacy watch out for?
aspirin, ibuprofen, penicillin, antihistamines, codeine

constraint
I need the report by {v}.
The report has to be done by {v}.
My report must not come later than {v}.
By when {do} {who} need the report?
What is the deadline for that document?
Until which day can the paperwork wait?
Whitsun, Candlemas, Halloween, Epiphany, Michaelmas

constraint
I can't be in a room with {v}.
I get asthma in a room with {v}.
{v} make me sneeze, so keep them out of my room.
What can't {who} be in a room with?
Which animals trigger {whose} asthma?
What pets are impossible?
cats, horses, rabbits, parrots, hamsters

constraint
I never work on {v}.
I don't work any shifts on {v}.
On {v} I am not at work.
On which days {do} {who} never work?
When {is} {who} off duty, without shifts?
Which slot must the roster keep free?
Mondays, Tuesdays, Wednesdays, Fridays, Sundays

constraint
I only pay by {v}.
Please let me pay by {v} alone.
I want to pay with {v}, nothing else.
How {do} {who} want to pay?
Which payment method {do} {who} accept?
How should the purchase be settled?
invoice, bank transfer, cheque, gift card, direct debit

event
I am moving to {v} at the end of the month.
At the end of the month I move to {v}.
I move into my new flat in {v} at the end of the month.
Where {is} {who} moving at the end of the month?
In which town will {who} rent a new place?
Where should the furniture van drive?
Bristol, Ghent, Poznan, Graz, Malmo

event
I have an operation on my {v} next week.
Next week there is the operation on my {v}.
My {v} operation is next week.
What operation {do} {who} have next week?
Which part of the body needs surgery?
What will the hospital treat?
shoulder, wrist, ankle, hip, elbow

event
I give a talk about {v} on Friday.
On Friday I talk about {v}.
My talk on Friday is about {v}.
What {do} {who} talk about on Friday?
What is the topic of {whose} lecture?
Which slides must be ready?
glaciers, compilers, medieval maps, coral reefs, typography

event
My {v} comes to visit in two weeks.
In two weeks I have a visit from my {v}.
I expect a visit from my {v} in two weeks.
Who comes to visit in two weeks?
Which guest {do} {who} expect?
For whom should the spare bed be prepared?
grandmother, godfather, aunt, uncle, niece

event
I watch the game against {v} on Sunday.
On Sunday we play against {v}.
We play the {v} on Sunday.
Against whom {do} {who} play on Sunday?
Who is the opponent in that game?
Which rival team is up this weekend?
Ravens, Otters, Comets, Badgers, Falcons

fact
I was born in {v}.
My birthplace is {v}, I was born there.
I come from {v}, where I was born.
Where was {who} born?
What is the birthplace, the native town of {whom}?
Which location stands in {whose} passport?
Cusco, Tartu, Galway, Izmir, Nagoya

fact
I play the {v}.
The instrument that I play is the {v}.
I have been learning to play the {v} for years.
Which instrument {do} {who} play?
What {is} {who} learning to make music with?
What could {who} bring along to the orchestra?
cello, oboe, accordion, harp, trombone

fact
My phone is a {v}.
I have a {v} phone.
I got myself a {v} as my phone.
Which phone {do} {who} have?
What mobile device {do} {who} own?
For which handset is a charger needed?
Fairphone, Pixel, Nokia, Xperia, Motorola

fact
My manager is {v}.
I have {v} as my manager.
{v} is the manager of my team.
Who is {whose} manager?
Who is {whose} boss?
Who has to approve the vacation?
Beatriz, Svetlana, Kwame, Ingrid, Rashid

fact
I studied at {v}.
I studied in {v} for my degree.
I got my degree where I studied, in {v}.
Where is it that {who} studied?
Which university gave {whom} a degree?
What should the education section of the CV say?
Uppsala, Coimbra, Bologna, Leuven, Durham

fact
My parking space is {v}.
I park in parking space {v}.
I leave the car in parking space {v}.
What is {whose} parking space?
Where {do} {who} put the vehicle or car in the garage?
Which spot must stay empty for {whom}?
B12, C40, A07, D33, E19
"""
)
