from counting import count_one, count_one_in_task
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse
from django.urls import path

import locks
from locks import aio

settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="for tests", DEBUG=False)


def count(request):
    with locks.Lock(("counter",)):
        count_one()
    return HttpResponse("done")


async def count_in_task(request):
    async with aio.Lock(("counter",)):
        await count_one_in_task()
    return HttpResponse("done")


urlpatterns = [path("count", count), path("count/in-task", count_in_task)]
wsgi = get_wsgi_application()
asgi = get_asgi_application()
