from django.urls import path

from webhooks.inbound import api

urlpatterns = [path("relay/<int:number>/", api.relay_host, name="relay-webhook")]
