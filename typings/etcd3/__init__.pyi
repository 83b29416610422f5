from etcd3 import etcdrpc as etcdrpc
