"""The part of figure `recall`'s facts that rules and weights may be tuned on."""

from __future__ import annotations

from benchmarks.support.fact_forms import forms

LATER = ("These days", "By now", "Since last week")
CORRECTION = ("Sorry, that was wrong:", "Correction:", "No, wait:")
"""How a new value begins, of an update and of a correction."""
FORMS = forms(
    """
preference
I prefer {v} tea.
My favourite tea is {v}.
Nothing beats a cup of {v} tea for me.
Which tea {do} {who} prefer?
What hot drink {do} {who} like best?
What should go into {whose} mug in the morning?
oolong, assam, rooibos, sencha, darjeeling

preference
I always want a {v} seat on trains.
On a train I prefer the {v} seat.
Please remember that I like the {v} seat in trains.
Which seat on trains {do} {who} like?
Where {do} {who} prefer to sit when going by rail?
Which spot in the carriage should be booked?
window, aisle, upper, rear, middle

preference
I love listening to {v} while I work.
My favourite music for work is {v}.
I enjoy {v} music when I am working.
Which music {do} {who} love at work?
What tunes {do} {who} like on the job?
What should be on the office playlist for {whom}?
bebop, fado, techno, baroque, bluegrass

preference
I prefer {v} as my editor.
My editor of choice is {v}.
My editor for all code is {v}.
Which editor {do} {who} prefer?
What program {do} {who} use for coding?
Which tool opens {whose} source files?
Emacs, Helix, Kakoune, Sublime, Nano

preference
My favourite pizza is {v}.
I like pizza with {v} most.
I always order {v} on my pizza.
What {do} {who} like on {whose} pizza?
Which topping {do} {who} enjoy most?
What shall the Italian place bake for {whom}?
anchovy, artichoke, gorgonzola, pineapple, mushroom

preference
I prefer to stay in {v}.
When I travel, I stay in {v}.
My favourite places to stay are {v}.
Where {do} {who} prefer to stay?
Which accommodation {do} {who} like on trips?
What kind of lodging should be reserved?
small guesthouses, big hotels, youth hostels, campsites, farm cottages

preference
I mostly read {v}.
My favourite books are {v}.
I can't put {v} down when I read.
Which books {do} {who} read most?
What literature {do} {who} like?
What could be a good present from the library shop?
detective novels, biographies, space operas, travelogues, short stories

preference
My favourite colour is {v}.
I like {v} best of all colours.
I would give everything the colour {v} if I could.
What is {whose} favourite colour?
Which shade {do} {who} love?
How should the wall look for {whom}?
teal, crimson, ochre, lilac, turquoise

constraint
I don't eat food with {v}.
I can't have food with {v}, I get ill.
I have to avoid {v} in my food.
What food {do} {who} have to avoid?
Which ingredient makes {whom} ill?
What must the kitchen leave out?
peanuts, shellfish, gluten, celery, sesame

constraint
I can't spend more than {v} a month on rent.
My rent must stay below {v}.
The most I can pay for rent is {v}.
How much rent can {who} pay?
What is the limit for {whose} flat each month?
Which budget applies to the apartment search?
700 euros, 850 euros, 920 euros, 1100 euros, 640 euros

constraint
I never take calls before {v}.
Please don't call me before {v}.
I am not available for calls until {v}.
From when on can {who} take calls?
What is the earliest time to phone {whom}?
How early may the telephone ring?
nine, ten, half past ten, eleven, noon

constraint
I can't use {v} because of my knee.
My knee does not allow {v}.
With my bad knee I have to do without {v}.
What can {who} not use because of {whose} knee?
What is impossible for {whom} with that leg?
What should be skipped after the injury?
stairs, ladders, bicycles, escalators, skis

constraint
Please write me messages only in {v}.
I only read messages in {v}.
All messages to me have to be in {v}.
In which language should messages to {whom} be written?
What tongue should mail for {whom} use?
How should the translator set up correspondence?
Finnish, Catalan, Danish, Welsh, Basque

event
I am flying to {v} on the 14th of next month.
My flight to {v} leaves next month.
Next month I take the plane to {v}.
Where {is} {who} flying next month?
Which city is the destination of {whose} plane?
What holiday trip is coming up?
Lisbon, Tallinn, Palermo, Reykjavik, Marseille

event
I have an appointment with Dr {v} on Thursday.
On Thursday I see my dentist, Dr {v}.
Dr {v} will look at my teeth on Thursday.
Which dr {do} {who} have an appointment with on Thursday?
Who takes care of {whose} teeth?
Whom should the clinic reminder mention?
Okafor, Lindqvist, Marchetti, Petrov, Tanaka

event
My exam in {v} is in three weeks.
In three weeks I sit the {v} exam.
I have to pass the {v} exam in three weeks.
Which exam {do} {who} sit in three weeks?
What test {is} {who} studying for?
Which subject needs revision soon?
statistics, anatomy, Latin, thermodynamics, law

event
My {v} gets married in the summer.
In the summer there is the wedding of my {v}.
I am invited to the marriage of my {v} this summer.
Whose wedding or marriage is it in the summer?
Which relative or friend will marry?
For whom should a gift and a dress be chosen?
cousin, sister, neighbour, nephew, roommate

event
I have tickets for {v} on Saturday.
On Saturday I go to see {v} live.
I will be at the {v} concert on Saturday.
Which concert {do} {who} have on Saturday?
What band will {who} watch live?
Which show needs a babysitter?
Radiohead, Bjork, Kraftwerk, Interpol, Portishead

fact
I live in {v}.
My home is in {v}.
I live in a flat in {v}.
Where {do} {who} live, and where is {whose} home?
In which town is {whose} apartment?
Which address should the parcel get?
Utrecht, Gdansk, Bilbao, Aarhus, Leipzig

fact
My dog is called {v}.
I have a dog named {v}.
The name of my dog is {v}.
What is the name of {whose} dog?
What is {whose} puppy called?
Who needs a walk every day?
Biscuit, Pixel, Waffle, Nimbus, Pepper

fact
I work as a {v}.
My job is to work as a {v}.
I earn my living as a {v}.
What {do} {who} work as, and what {do} {who} earn a living with?
Which profession {do} {who} have?
What should stand under occupation on the form?
welder, pharmacist, surveyor, librarian, beekeeper

fact
I drive a {v}.
My car is a {v}.
I bought a used {v} as my car.
Which car {do} {who} drive?
What vehicle {do} {who} own?
For which brand is a spare part needed?
Volvo, Skoda, Fiat, Subaru, Dacia

fact
My daughter goes to {v} school.
I bring my daughter to {v} school every day.
My daughter is a pupil at {v}.
Which school does {whose} daughter go to?
Where is {whose} kid being educated?
Which teachers should hear about the illness of the girl?
Hillside, Riverdale, Westbrook, Oakfield, Northgate

fact
My locker number is {v}.
I have locker {v} at the gym.
At the gym my things are in locker {v}.
What is {whose} locker number at the gym?
Which cabinet in the fitness studio has {whose} bag?
Where are the sports clothes kept?
117, 342, 158, 271, 409
"""
)
