from django.urls import path

from webhooks.inbound import api

urlpatterns = [
    path("relay/<int:number>/", api.relay_host, name="relay-webhook"),
    path("bluebubbles/<str:token>/", api.bluebubbles_host, name="bluebubbles-webhook"),
    path("providers/<str:route>/", api.provider, name="provider-webhook"),
]
